// SPDX-License-Identifier: Apache-2.0
// What evaluate() relies on: programs that cannot go wrong on any call, and texts that stay.
#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

#include "error.h"
#include "expression.h"

namespace torch_fl::runtime {
namespace {

[[noreturn]] void malformed(size_t at, const std::string& what) {
  throw Error(FL_INVALID_ARGUMENT, "instruction " + std::to_string(at) + " of a program " + what);
}

struct Interned {
  std::mutex mutex;
  std::unordered_set<std::string> texts;  // whose nodes never move
  std::unordered_set<const char*> pointers;
};
Interned& interned() {
  static auto* all = new Interned;
  return *all;
}

bool is_interned(const char* text) {
  const std::lock_guard lock(interned().mutex);
  return interned().pointers.count(text) != 0;
}

struct Effect {
  int64_t takes, gives;
};

int64_t bounded_count(size_t at, const Instruction& step) {
  if (step.integer < 1 || step.integer > static_cast<int64_t>(kMaxDepth))
    malformed(at, "takes an absurd number of values");
  return step.integer;
}

Effect effect_of(size_t at, const Instruction& step) {
  const int32_t code = step.code;
  if ((code >= kInteger && code <= kPosition) || (code >= kValue && code <= kLength)) return {0, 1};
  if (code == kElement || code == kSize || code == kStride) return {1, 1};
  if (code == kTensor) return {1, 0};
  if (code >= kSizeAt && code <= kChannelsLast) return {0, 1};
  if ((code >= kAdd && code <= kDivide) || (code >= kEqual && code <= kGreaterEqual)) return {2, 1};
  if (code == kNegate || code == kNot || code == kAbs) return {1, 1};
  if (code == kMin || code == kMax) return {bounded_count(at, step), 1};
  if (code == kIn) return {bounded_count(at, step) + 1, 1};
  if (code == kJump) return {0, 0};
  if (code >= kJumpIfFalse && code <= kJumpIfTrueKeep) return {1, 0};
  if (code == kEveryIn) return {bounded_count(at, step), 1};
  if (code == kEveryAtLeast || code == kEveryAtMost) return {1, 1};
  if (code >= kEveryDtypeIn && code <= kEveryNumelAtMost) return {0, 1};
  if (code >= kEverySizeMultiple && code <= kEverySizeAtMost) return {1, 1};
  malformed(at, "has the unknown code " + std::to_string(code));
}

void check_operand(size_t at, const Instruction& step) {
  switch (step.code) {
    case kString:
      if (!is_interned(reinterpret_cast<const char*>(step.integer))) malformed(at, "refers to no text");
      break;
    case kType:
      if (step.integer < 0 || step.integer > 63) malformed(at, "names no element type");
      break;
    case kEverySizeMultiple:
      if (step.integer < 1) malformed(at, "asks for multiples of less than 1");
      break;
    default:
      break;
  }
}

/// Stack depths before each instruction, as far as they are known: -1 where nothing leads there.
class Depths {
 public:
  explicit Depths(size_t n) : depths_(n + 1, -1) {}
  void meet(size_t at, size_t to, int64_t depth) {
    if (to >= depths_.size()) malformed(at, "jumps out of it");
    if (depth > static_cast<int64_t>(kMaxDepth)) malformed(at, "needs a deeper stack than there is");
    if (depths_[to] >= 0 && depths_[to] != depth) malformed(at, "leads to where the stack has another depth");
    depths_[to] = depth;
  }
  int64_t operator[](size_t at) const { return depths_[at]; }

 private:
  std::vector<int64_t> depths_;
};

size_t jump_target(size_t at, const Instruction& step, size_t n) {
  if (step.integer < 0 || step.integer > static_cast<int64_t>(n)) malformed(at, "jumps out of it");
  return at + 1 + static_cast<size_t>(step.integer);
}

}  // namespace

void verify(const Program& program) {
  const size_t n = program.size();
  if (n == 0 || n > kMaxInstructions) {
    throw Error(FL_INVALID_ARGUMENT, "a program has " + std::to_string(n) + " instructions, but 1 to " +
                                         std::to_string(kMaxInstructions) + " were expected");
  }
  Depths depths(n);
  depths.meet(0, 0, 0);
  for (size_t at = 0; at < n; ++at) {
    const Instruction& step = program[at];
    const Effect effect = effect_of(at, step);
    check_operand(at, step);
    if (depths[at] < 0) malformed(at, "is never reached");
    if (depths[at] < effect.takes) malformed(at, "takes more values than there are");
    const int64_t after = depths[at] - effect.takes + effect.gives;
    const bool keeps = step.code == kJumpIfFalseKeep || step.code == kJumpIfTrueKeep;
    if (step.code >= kJump && step.code <= kJumpIfTrueKeep) {
      depths.meet(at, jump_target(at, step, n), after + (keeps ? 1 : 0));
    }
    if (step.code != kJump) depths.meet(at, at + 1, after);
  }
  if (depths[n] != 1) malformed(n, "ends it with other than one value");
}

const char* intern(const std::string& text) {
  const std::lock_guard lock(interned().mutex);
  const char* kept = interned().texts.insert(text).first->c_str();
  interned().pointers.insert(kept);
  return kept;
}

}  // namespace torch_fl::runtime
