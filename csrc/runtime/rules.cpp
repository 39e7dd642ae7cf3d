// SPDX-License-Identifier: Apache-2.0
#include "rules.h"

#include "expression.h"

namespace torch_fl::runtime {
namespace {

void replace(std::string& text, const std::string& what, const std::string& by) {
  const size_t at = text.find(what);
  if (at != std::string::npos) text.replace(at, what.size(), by);
}

/// "{item}" and "{position}" in the text are where it failed.
std::string describe(const Check& check, const fl_call& call, Trace& trace) {
  std::string text = check.expected;
  replace(text, "{item}", trace.item < 0 ? "" : "[" + std::to_string(trace.item) + "]");
  replace(text, "{position}", std::to_string(trace.position));
  if (check.found.empty()) return text;
  return text + ", found " + to_text(evaluate(check.found, call, trace));
}

}  // namespace

std::string broken_rule(const OpRules& rules, const fl_call& call) {
  Trace trace;
  for (const Check& check : rules.checks) {
    if (holds(check.holds, call, trace)) continue;
    return describe(check, call, trace);
  }
  return "";
}

}  // namespace torch_fl::runtime
