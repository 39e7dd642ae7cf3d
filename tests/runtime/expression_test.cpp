// SPDX-License-Identifier: Apache-2.0
#include "expression.h"

#include <gtest/gtest.h>

#include <random>

#include "error.h"
#include "made_up_call.h"

namespace torch_fl::runtime {
namespace {

constexpr int64_t kSmallest = INT64_MIN, kLargest = INT64_MAX;

Value run(const Program& program) {
  MadeUpCall none;
  verify(program);
  return evaluate(program, none.call());
}
Value run(const Program& program, MadeUpCall& call) {
  verify(program);
  return evaluate(program, call.call());
}

Value of(int32_t code, int64_t a, int64_t b) { return run({step(kInteger, a), step(kInteger, b), step(code)}); }
Value of(int32_t code, double a, double b) { return run({real_step(a), real_step(b), step(code)}); }

TEST(Expression, IntegersDivideAsInPython) {
  EXPECT_EQ(of(kFloorDivide, int64_t{7}, int64_t{2}).i, 3);
  EXPECT_EQ(of(kFloorDivide, int64_t{-7}, int64_t{2}).i, -4);
  EXPECT_EQ(of(kFloorDivide, int64_t{7}, int64_t{-2}).i, -4);
  EXPECT_EQ(of(kModulo, int64_t{-7}, int64_t{2}).i, 1);
  EXPECT_EQ(of(kModulo, int64_t{7}, int64_t{-2}).i, -1);
  EXPECT_EQ(of(kModulo, kSmallest, int64_t{-1}).i, 0);
  EXPECT_EQ(of(kDivide, int64_t{7}, int64_t{2}).d, 3.5);
}

TEST(Expression, WhatOverflowsOrDividesByZeroIsUndefined) {
  EXPECT_EQ(of(kAdd, kLargest, int64_t{1}).kind, Value::Undefined);
  EXPECT_EQ(of(kSubtract, kSmallest, int64_t{1}).kind, Value::Undefined);
  EXPECT_EQ(of(kMultiply, kLargest, int64_t{2}).kind, Value::Undefined);
  EXPECT_EQ(of(kFloorDivide, kSmallest, int64_t{-1}).kind, Value::Undefined);
  EXPECT_EQ(of(kFloorDivide, int64_t{1}, int64_t{0}).kind, Value::Undefined);
  EXPECT_EQ(of(kModulo, 1.0, 0.0).kind, Value::Undefined);
  EXPECT_EQ(run({step(kInteger, kSmallest), step(kNegate)}).kind, Value::Undefined);
  EXPECT_EQ(run({step(kInteger, kSmallest), step(kAbs)}).kind, Value::Undefined);
}

TEST(Expression, ComparesIntegersWithRealsExactly) {
  const int64_t big = (int64_t{1} << 53) + 1;
  EXPECT_EQ(run({step(kInteger, big), real_step(0x1p53), step(kGreater)}).i, 1);
  EXPECT_EQ(run({real_step(0x1p53), step(kInteger, big), step(kEqual)}).i, 0);
  EXPECT_EQ(run({step(kInteger, kLargest), real_step(0x1p63), step(kLess)}).i, 1);
  EXPECT_EQ(run({step(kInteger, 1), real_step(1.0), step(kEqual)}).i, 1);
  EXPECT_EQ(run({step(kInteger, 1), step(kType, FL_INT8), step(kEqual)}).kind, Value::Undefined);
}

TEST(Expression, LooksOnlyAtWhatItNeeds) {
  const Program undefined_if_reached = {step(kInteger, 1), step(kInteger, 0), step(kModulo)};
  Program both = {step(kBoolean, 1), step(kJumpIfTrueKeep, 3)};
  both.insert(both.end(), undefined_if_reached.begin(), undefined_if_reached.end());
  EXPECT_EQ(run(both).i, 1);
  both[0] = step(kBoolean, 0);
  EXPECT_EQ(run(both).kind, Value::Undefined);
  const Program choice = {step(kInteger, 0), step(kJumpIfFalse, 2), step(kInteger, 10), step(kJump, 1),
                          step(kInteger, 20)};
  EXPECT_EQ(run(choice).i, 20);
}

TEST(Expression, ReadsTheCall) {
  MadeUpCall call;
  call.arg(call.tensor({2, 3, 4})).arg(5).real(1.5).none().ints({7, 8}).text("mean");
  call.list({call.tensor({1}), nullptr, call.tensor({9, 9}, FL_INT64)}).out(call.tensor({6}));
  EXPECT_EQ(run({step(kSizeAt, -1)}, call).i, 4);
  EXPECT_EQ(run({step(kInteger, 0), step(kStride)}, call).i, 12);
  EXPECT_EQ(run({step(kSizeAt, 3)}, call).kind, Value::Undefined);
  EXPECT_EQ(run({step(kNumel)}, call).i, 24);
  EXPECT_EQ(run({step(kItemsize)}, call).i, 4);
  EXPECT_EQ(run({step(kSizeAt, 0, -1)}, call).i, 6);
  EXPECT_EQ(run({step(kSizeAt, 0, -2)}, call).kind, Value::Undefined);
  EXPECT_EQ(run({step(kValue, 0, 1)}, call).i, 5);
  EXPECT_EQ(run({step(kValue, 0, 2)}, call).d, 1.5);
  EXPECT_EQ(run({step(kValue, 0, 3)}, call).kind, Value::Undefined);
  EXPECT_EQ(run({step(kPresent, 0, 3)}, call).i, 0);
  EXPECT_EQ(run({step(kValue, 0, 99)}, call).kind, Value::Undefined);
  EXPECT_EQ(run({step(kInteger, -1), step(kElement, 0, 4)}, call).i, 8);
  EXPECT_EQ(run({step(kInteger, 2), step(kElement, 0, 4)}, call).kind, Value::Undefined);
  EXPECT_EQ(run({step(kLength, 0, 6)}, call).i, 3);
  EXPECT_EQ(run({step(kInteger, 2), step(kTensor, 0, 6), step(kSizeAt, 1, kTraced)}, call).i, 9);
  EXPECT_EQ(run({step(kInteger, 1), step(kTensor, 0, 6), step(kSizeAt, 1, kTraced)}, call).kind, Value::Undefined);
  const auto mean = reinterpret_cast<int64_t>(intern("mean"));
  EXPECT_EQ(run({step(kValue, 0, 5), step(kString, mean), step(kEqual)}, call).i, 1);
}

TEST(Expression, AddressesTakeOffsetsOnly) {
  MadeUpCall call;
  float data[2];
  call.arg(call.tensor({2}, FL_FLOAT32, data));
  const Value second = run({step(kData), step(kInteger, 4), step(kAdd)}, call);
  EXPECT_EQ(second.kind, Value::Address);
  EXPECT_EQ(reinterpret_cast<float*>(second.i), data + 1);
  EXPECT_EQ(run({step(kData), step(kInteger, 4), step(kMultiply)}, call).kind, Value::Undefined);
}

std::string refusal(const Program& program) {
  try {
    verify(program);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Expression, MalformedProgramsAreRefused) {
  EXPECT_NE(refusal({}), "");
  EXPECT_NE(refusal({step(kAdd)}), "");
  EXPECT_NE(refusal({step(kInteger), step(kInteger)}), "");
  EXPECT_NE(refusal({step(9999)}), "");
  EXPECT_NE(refusal({step(kJump, 5), step(kInteger)}), "");
  EXPECT_NE(refusal({step(kInteger), step(kJump, -2)}), "");
  EXPECT_NE(refusal({step(kInteger), step(kJump, 1), step(kInteger)}), "");                         // never reached
  EXPECT_NE(refusal({step(kBoolean), step(kJumpIfFalse, 1), step(kInteger), step(kInteger)}), "");  // two depths meet
  EXPECT_NE(refusal({step(kInteger), step(kMin, 2)}), "");
  EXPECT_NE(refusal({step(kInteger), step(kMin, 0)}), "");
  EXPECT_NE(refusal({step(kString, 12345)}), "");
  EXPECT_NE(refusal({step(kBoolean), step(kEverySizeMultiple, 0)}), "");
  EXPECT_NE(refusal({step(kType, 64)}), "");
  EXPECT_NE(refusal(Program(kMaxDepth + 1, step(kInteger))), "");
  EXPECT_EQ(refusal({step(kInteger)}), "");
}

/// Whatever verify() lets through must run on any call: the sanitizers watch.
TEST(Expression, RandomProgramsAreRefusedOrRun) {
  std::mt19937_64 random(1);
  const int32_t codes[] = {kInteger,
                           kReal,
                           kBoolean,
                           kType,
                           kComputeDtype,
                           kPosition,
                           kValue,
                           kAddress,
                           kPresent,
                           kLength,
                           kElement,
                           kTensor,
                           kSize,
                           kStride,
                           kSizeAt,
                           kStrideAt,
                           kNdim,
                           kDtype,
                           kItemsize,
                           kData,
                           kAdd,
                           kMultiply,
                           kModulo,
                           kFloorDivide,
                           kDivide,
                           kNegate,
                           kNot,
                           kEqual,
                           kLess,
                           kAbs,
                           kMin,
                           kMax,
                           kIn,
                           kJump,
                           kJumpIfFalse,
                           kJumpIfFalseKeep,
                           kJumpIfTrueKeep,
                           kEveryIn,
                           kEveryAtLeast,
                           kEveryDtypeIn,
                           kEveryNdimIn,
                           kEveryNumelAtMost,
                           kEverySizeMultiple,
                           kEverySizeAtMost};
  const int64_t operands[] = {0, 1, 2, 3, -1, 63, kLargest, kSmallest};
  const int32_t indices[] = {0, 1, 2, 3, 4, 5, 6, 7, -1, -2, kTraced, INT32_MAX, INT32_MIN + 1};
  MadeUpCall call;
  call.arg(call.tensor({2, 3})).arg(4).real(2.5).none().ints({1, 2}).text("x").list({call.tensor({0}), nullptr});
  call.out(call.tensor({5})).out(nullptr);
  int ran = 0;
  for (int i = 0; i < 40000; ++i) {
    Program program(1 + random() % 5);
    for (Instruction& each : program) {
      each = step(codes[random() % std::size(codes)], operands[random() % std::size(operands)],
                  indices[random() % std::size(indices)]);
    }
    if (!refusal(program).empty()) continue;
    to_text(evaluate(program, call.call()));
    ++ran;
  }
  EXPECT_GT(ran, 1000);
}

Check check(Program holds, Program found, const char* expected) {
  Check c;
  c.holds = std::move(holds), c.found = std::move(found), c.expected = expected;
  return c;
}

TEST(Rules, TellWhatWasExpectedWhereAndWhatWasFound) {
  OpRules rules;
  rules.checks.push_back(check({step(kInteger, 1), step(kInteger, 2), step(kEveryIn, 2, 1)},
                               {step(kPosition), step(kElement, 0, 1)}, "stride[{position}] must be 1 or 2"));
  rules.checks.push_back(check({step(kBoolean, 0), step(kEverySizeMultiple, 8)},
                               {step(kPosition), step(kSize, 0, kTraced)},
                               "x.size({position}) must be a multiple of 8"));
  rules.checks.push_back(check({step(kEveryDtypeIn, FL_DTYPE_BIT(FL_FLOAT32), 2)}, {step(kDtype, 0, kTraced)},
                               "list{item} must be float32"));
  const auto broken = [&](int64_t stride, int64_t size, fl_dtype dtype) {
    MadeUpCall call;
    call.arg(call.tensor({8, size})).ints({1, stride}).list({call.tensor({1}), call.tensor({1}, dtype)});
    return broken_rule(rules, call.call());
  };
  EXPECT_EQ(broken(2, 16, FL_FLOAT32), "");
  EXPECT_EQ(broken(3, 16, FL_FLOAT32), "stride[1] must be 1 or 2, found 3");
  EXPECT_EQ(broken(2, 12, FL_FLOAT32), "x.size(1) must be a multiple of 8, found 12");
  EXPECT_EQ(broken(2, 8, FL_INT64), "list[1] must be float32, found int64");
}

TEST(Rules, OneValueIsAskedAsAListIs) {
  OpRules rules;
  rules.checks.push_back(check({step(kInteger, 1), step(kEveryIn, 1, 0)}, {step(kValue)}, "groups must be 1"));
  rules.checks.push_back(check({step(kInteger, 0), step(kEveryAtLeast, 0, 0)}, {}, "groups must be at least 0"));
  MadeUpCall one, two;
  EXPECT_EQ(broken_rule(rules, one.arg(1).call()), "");
  EXPECT_EQ(broken_rule(rules, two.arg(2).call()), "groups must be 1, found 2");
}

TEST(Rules, WhatIsUndefinedDoesNotHold) {
  OpRules rules;
  rules.checks.push_back(
      check({step(kSizeAt, 5), step(kInteger, 1), step(kEqual)}, {step(kSizeAt, 5)}, "size(5) must be 1"));
  MadeUpCall call;
  call.arg(call.tensor({1}));
  EXPECT_EQ(broken_rule(rules, call.call()), "size(5) must be 1, found nothing");
}

TEST(Rules, AbsentTensorsAreAskedNothing) {
  OpRules rules;
  rules.checks.push_back(check({step(kEveryNdimIn, 1 << 1, 0)}, {}, "one dimension"));
  MadeUpCall call;
  EXPECT_EQ(broken_rule(rules, call.none().call()), "");
}

}  // namespace
}  // namespace torch_fl::runtime
