// SPDX-License-Identifier: Apache-2.0
#include "library_chip.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include "device.h"
#include "error.h"
#include "made_up_call.h"

namespace torch_fl::runtime {
namespace {

const std::string kLibrary = FAKES_DIR "/plain_library.so";

void* library() {
  static void* opened = dlopen(kLibrary.c_str(), RTLD_NOW);
  return opened;
}
int& counter(const char* name) { return *static_cast<int*>(dlsym(library(), name)); }

CFunction function(const char* symbol, CType result, std::vector<CType> parameters, std::vector<Program> arguments) {
  CFunction f;
  f.symbol = symbol;
  f.result = result;
  f.reads_values.assign(parameters.size(), false);
  f.parameters = std::move(parameters);
  f.arguments = std::move(arguments);
  return f;
}

/// add(self, other, alpha): out starts as self.
DescribedKernel axpy() {
  DescribedKernel k;
  k.op = "aten::add.Tensor";
  k.plain = true;
  k.dtypes = FL_DTYPE_BIT(FL_FLOAT32) | FL_DTYPE_BIT(FL_FLOAT64);
  k.symbols = {{FL_FLOAT32, "plain_axpy32"}, {FL_FLOAT64, "plain_axpy64"}};
  k.call = function("plain_axpy32", CType::Int32, {CType::Int32, CType::Compute, CType::Pointer, CType::Pointer},
                    {{step(kNumel, 0, 1)}, {step(kValue, 0, 2)}, {step(kData, 0, 1)}, {step(kData, 0, -1)}});
  k.call.reads_values[1] = true;
  k.starts_as = 0;
  return k;
}

Described described(std::vector<DescribedKernel> kernels) {
  Described d;
  d.name = "plain";
  d.library = kLibrary;
  d.properties.struct_size = sizeof d.properties;
  d.kernels = std::move(kernels);
  return d;
}

std::string refusal(const Described& d) {
  try {
    LibraryChip chip(d, library());
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

/// The kernel of the only row, called.
struct Called {
  fl_status supports, status;
  std::string message;
};
Called call(LibraryChip& chip, MadeUpCall& made_up) {
  fl_call& c = made_up.call();
  c.kernel = &chip.kernels[0];
  fl_device device = nullptr;
  chip.open(0, &device);
  c.device = device;
  Called called{};
  take_plugin_message();
  called.supports = c.kernel->supports(&c);
  called.message = take_plugin_message();
  called.status = c.kernel->run(&c);
  const std::string message = take_plugin_message();
  if (!message.empty()) called.message = message;
  return called;
}

TEST(LibraryChip, CallsTheFunctionOfTheType) {
  LibraryChip chip(described({axpy()}), library());
  const int before = counter("plain_calls");
  float a[] = {1, 2}, b[] = {10, 20}, c[2];
  MadeUpCall floats;
  floats.arg(floats.tensor({2}, FL_FLOAT32, a)).arg(floats.tensor({2}, FL_FLOAT32, b)).real(0.5);
  floats.out(floats.tensor({2}, FL_FLOAT32, c));
  const Called called = call(chip, floats);
  EXPECT_EQ(called.supports, FL_OK) << called.message;
  EXPECT_EQ(called.status, FL_OK) << called.message;
  EXPECT_EQ(c[0], 6);
  EXPECT_EQ(c[1], 12);

  double x[] = {1, 2}, y[] = {10, 20}, z[2];
  MadeUpCall doubles;
  doubles.arg(doubles.tensor({2}, FL_FLOAT64, x)).arg(doubles.tensor({2}, FL_FLOAT64, y)).arg(3);
  doubles.out(doubles.tensor({2}, FL_FLOAT64, z)).call().compute_dtype = FL_FLOAT64;
  EXPECT_EQ(call(chip, doubles).status, FL_OK);
  EXPECT_EQ(z[1], 62);
  EXPECT_EQ(counter("plain_calls"), before + 2);
}

TEST(LibraryChip, OutputsStartAsABroadcastCopy) {
  LibraryChip chip(described({axpy()}), library());
  float a[] = {1, 2}, b[] = {10, 20, 30, 40}, c[4];
  MadeUpCall made_up;
  made_up.arg(made_up.tensor({2}, FL_FLOAT32, a)).arg(made_up.tensor({2, 2}, FL_FLOAT32, b)).arg(1);
  made_up.out(made_up.tensor({2, 2}, FL_FLOAT32, c));
  EXPECT_EQ(call(chip, made_up).status, FL_OK);
  EXPECT_EQ(c[0], 11);
  EXPECT_EQ(c[1], 22);
  EXPECT_EQ(c[2], 31);
  EXPECT_EQ(c[3], 42);
}

TEST(LibraryChip, AnOutputThatIsAnInputStillToBeReadIsDeclined) {
  LibraryChip chip(described({axpy()}), library());
  float a[] = {1, 2}, b[] = {10, 20};
  MadeUpCall made_up;
  made_up.arg(made_up.tensor({2}, FL_FLOAT32, a)).arg(made_up.tensor({2}, FL_FLOAT32, b)).arg(1);
  made_up.out(made_up.tensor({2}, FL_FLOAT32, b));
  EXPECT_EQ(call(chip, made_up).status, FL_UNSUPPORTED);
  EXPECT_EQ(b[0], 10);
}

TEST(LibraryChip, ArgumentsThatDoNotFitDeclineTheCall) {
  LibraryChip chip(described({axpy()}), library());
  float a[] = {1};
  MadeUpCall absent;
  absent.arg(absent.tensor({1}, FL_FLOAT32, a)).none().arg(1).out(absent.tensor({1}, FL_FLOAT32, a));
  Called called = call(chip, absent);
  EXPECT_EQ(called.supports, FL_UNSUPPORTED);
  EXPECT_EQ(called.message, "argument 1 of plain_axpy32 has no value for this call");

  MadeUpCall large;
  large.arg(large.tensor({1}, FL_FLOAT32, a)).arg(large.tensor({int64_t{1} << 31}, FL_FLOAT32, a)).arg(1);
  called = call(chip, large.out(large.tensor({int64_t{1} << 31}, FL_FLOAT32, a)));
  EXPECT_EQ(called.supports, FL_UNSUPPORTED);
  EXPECT_EQ(called.message, "argument 1 of plain_axpy32 is 2147483648, which its type, int, cannot hold");

  MadeUpCall infinite;
  infinite.arg(infinite.tensor({1}, FL_FLOAT32, a)).arg(infinite.tensor({1}, FL_FLOAT32, a)).real(1e300);
  called = call(chip, infinite.out(infinite.tensor({1}, FL_FLOAT32)));
  EXPECT_EQ(called.supports, FL_OK);  // the value is no part of the signature
  EXPECT_EQ(called.status, FL_UNSUPPORTED);
}

TEST(LibraryChip, StatusCodesHaveMeanings) {
  Described d = described({axpy()});
  d.runtime.status.out_of_memory = {2};
  d.runtime.status.device_lost = {7};
  LibraryChip chip(d, library());
  float a[] = {1}, b[] = {1}, c[1];
  MadeUpCall made_up;
  made_up.arg(made_up.tensor({1}, FL_FLOAT32, a)).arg(made_up.tensor({1}, FL_FLOAT32, b)).arg(1);
  made_up.out(made_up.tensor({1}, FL_FLOAT32, c));
  const auto after = [&](int code) {
    counter("plain_next_status") = code;
    return call(chip, made_up);
  };
  EXPECT_EQ(after(2).status, FL_OUT_OF_MEMORY);
  EXPECT_EQ(after(7).status, FL_DEVICE_LOST);
  EXPECT_EQ(after(9).status, FL_INTERNAL);
  EXPECT_EQ(after(9).message, "plain_axpy32 returned 9");
}

TEST(LibraryChip, AReturnedNumberIsTheOutput) {
  DescribedKernel k;
  k.op = "aten::sum";
  k.plain = true;
  k.dtypes = FL_DTYPE_BIT(FL_FLOAT32);
  k.call = function("plain_total32", CType::Compute, {CType::Int32, CType::Pointer}, {{step(kNumel)}, {step(kData)}});
  LibraryChip chip(described({k}), library());
  float a[] = {1, 2, 4}, total[] = {0};
  MadeUpCall made_up;
  made_up.arg(made_up.tensor({3}, FL_FLOAT32, a)).out(made_up.tensor({}, FL_FLOAT32, total));
  EXPECT_EQ(call(chip, made_up).status, FL_OK);
  EXPECT_EQ(total[0], 7);
  MadeUpCall wide;
  wide.arg(wide.tensor({3}, FL_FLOAT32, a)).out(wide.tensor({2}, FL_FLOAT32, a));
  EXPECT_EQ(call(chip, wide).supports, FL_UNSUPPORTED);
}

TEST(LibraryChip, SmallTypesArriveWhole) {
  DescribedKernel k;
  k.op = "aten::relu";
  k.plain = true;
  const auto mean = reinterpret_cast<int64_t>(intern("mean"));
  k.call = function("plain_small", CType::Int8, {CType::Int8, CType::UInt16, CType::Bool, CType::Pointer},
                    {{step(kInteger, -5)}, {step(kInteger, 65535)}, {step(kBoolean, 1)}, {step(kString, mean)}});
  LibraryChip chip(described({k}), library());
  MadeUpCall made_up;
  EXPECT_EQ(call(chip, made_up).status, FL_OK);
}

TEST(LibraryChip, MemoryOfTheHostIsLimited) {
  Described d = described({});
  d.properties.total_memory = 1 << 20;
  d.properties.alignment = 4096;
  LibraryChip chip(d, library());
  fl_device device = nullptr;
  fl_address a = 0, b = 0;
  ASSERT_EQ(chip.open(0, &device), FL_OK);
  EXPECT_EQ(chip.alloc(device, 1 << 19, &a), FL_OK);
  EXPECT_EQ(a % 4096, 0U);
  EXPECT_EQ(chip.alloc(device, (1 << 19) + 1, &b), FL_OUT_OF_MEMORY);
  EXPECT_EQ(chip.alloc(device, UINT64_MAX, &b), FL_OUT_OF_MEMORY);
  uint64_t free_bytes = 0, total = 0;
  chip.info(device, &free_bytes, &total);
  EXPECT_EQ(free_bytes, uint64_t{1} << 19);
  EXPECT_EQ(chip.free(device, a), FL_OK);
  EXPECT_EQ(chip.free(device, a), FL_INVALID_ARGUMENT);
  EXPECT_EQ(chip.alloc(device, 1 << 20, &a), FL_OK);
  EXPECT_EQ(chip.free(device, a), FL_OK);
}

// device, bytes, result | device, address | device, bytes, kind, dst, src
Described with_own_memory() {
  Described d = described({axpy()});
  d.host_coherent = false;
  LibraryRuntime& r = d.runtime;
  r.count = function("plain_count", CType::Int32, {}, {});
  r.init = function("plain_init", CType::Int32, {CType::Int32}, {{step(kValue, 0, 0)}});
  r.alloc = function("plain_malloc", CType::Pointer, {CType::UInt64}, {{step(kValue, 0, 1)}});
  r.free = function("plain_free", CType::Void, {CType::Pointer}, {{step(kAddress, 0, 1)}});
  r.copy = function("plain_copy", CType::Int32, {CType::Pointer, CType::Pointer, CType::UInt64, CType::Int32},
                    {{step(kAddress, 0, 3)},
                     {step(kAddress, 0, 4)},
                     {step(kValue, 0, 1)},
                     {step(kValue, 0, 2), step(kInteger, 1), step(kAdd)}});
  r.synchronize = function("plain_sync", CType::Int32, {}, {});
  r.status.out_of_memory = {2};
  return d;
}

TEST(LibraryChip, UsesTheLibrarysOwnFunctions) {
  LibraryChip chip(with_own_memory(), library());
  int32_t n = 0;
  EXPECT_EQ(chip.count(&n), FL_OK);
  EXPECT_EQ(n, 2);
  fl_device device = nullptr;
  const int inits = counter("plain_inits"), syncs = counter("plain_syncs");
  ASSERT_EQ(chip.open(1, &device), FL_OK);
  EXPECT_EQ(counter("plain_inits"), inits + 2);
  fl_address address = 0;
  ASSERT_EQ(chip.alloc(device, 64, &address), FL_OK);
  const char text[] = "there and back";
  char back[sizeof text] = {};
  EXPECT_EQ(chip.copy(device, address, reinterpret_cast<fl_address>(text), sizeof text, FL_COPY_HOST_TO_DEVICE), FL_OK);
  EXPECT_EQ(chip.copy(device, reinterpret_cast<fl_address>(back), address, sizeof text, FL_COPY_DEVICE_TO_HOST), FL_OK);
  EXPECT_STREQ(back, text);
  EXPECT_EQ(chip.synchronize(device), FL_OK);
  EXPECT_EQ(counter("plain_syncs"), syncs + 1);
  EXPECT_EQ(chip.free(device, address), FL_OK);
  counter("plain_next_status") = 1;
  EXPECT_EQ(chip.alloc(device, 64, &address), FL_OUT_OF_MEMORY);  // a null pointer
}

TEST(LibraryChip, ResultsThroughPointers) {
  Described d = with_own_memory();
  d.runtime.count = function("plain_count_to", CType::Int32, {CType::Pointer}, {{step(kAddress, 0, 0)}});
  d.runtime.alloc = function("plain_malloc_to", CType::Int32, {CType::Int32, CType::Pointer, CType::UInt64},
                             {{step(kValue, 0, 0)}, {step(kAddress, 0, 2)}, {step(kValue, 0, 1)}});
  LibraryChip chip(d, library());
  int32_t n = 0;
  EXPECT_EQ(chip.count(&n), FL_OK);
  EXPECT_EQ(n, 3);
  fl_device device = nullptr;
  fl_address address = 0;
  ASSERT_EQ(chip.open(0, &device), FL_OK);
  ASSERT_EQ(chip.alloc(device, 64, &address), FL_OK);
  EXPECT_EQ(chip.free(device, address), FL_OK);
}

TEST(LibraryChip, WhatTheLibraryDoesNotHaveIsNamed) {
  DescribedKernel k = axpy();
  k.symbols[1].second = "plain_axpy_64";
  k.call.where = "plain.yaml:7:11: supported_ops[0].impl";
  EXPECT_EQ(refusal(described({k})),
            "plain.yaml:7:11: supported_ops[0].impl: expected a function that the library exports, found none named "
            "plain_axpy_64");
  k = axpy();
  k.symbols = {{FL_FLOAT16, "plain_axpy32"}};
  EXPECT_NE(refusal(described({k})).find("T by value is float16"), std::string::npos);
  k = axpy();
  k.call.arguments.pop_back();
  EXPECT_NE(refusal(described({k})), "");
  k = axpy();
  k.call.arguments[0] = {step(kAdd)};
  EXPECT_NE(refusal(described({k})), "");
  Described d = with_own_memory();
  d.runtime.free = {};
  EXPECT_NE(refusal(d), "");
}

Check check_of(Program holds) {
  Check check;
  check.holds = std::move(holds);
  return check;
}

PluginReport last_report() { return Registry::get().reports().back(); }
PluginReport loaded(const Described& d) {
  Registry::get().load_described(d, {"plain.yaml", "test"});
  return last_report();
}

TEST(Described, MistakesAreReportedAndSkipTheChip) {
  Described d = described({axpy()});
  d.library = "libnothing_of_this_name.so.7";
  d.library_where = "plain.yaml:2:13: runtime_so";
  EXPECT_EQ(loaded(d).loaded, false);
  EXPECT_EQ(last_report().reason.find("plain.yaml:2:13: runtime_so: the library libnothing_of_this_name.so.7"), 0U)
      << last_report().reason;
  d = described({axpy()});
  d.required_rules = {"aten::mm"};
  EXPECT_NE(loaded(d).reason.find("no kernel for it"), std::string::npos) << last_report().reason;
  d = described({axpy()});
  d.rules.emplace_back("aten::add.Tensor", OpRules{});
  d.rules.back().second.checks.push_back(check_of({step(kAdd)}));
  EXPECT_NE(loaded(d).reason.find("a constraint of aten::add.Tensor"), std::string::npos) << last_report().reason;
  d = described({axpy()});
  d.name = "no name at all";
  EXPECT_FALSE(loaded(d).loaded);
}

TEST(Described, APlainLibraryBecomesAChip) {
  Described d = described({axpy()});
  d.device_type = "plain_type";
  d.policy = "warn";
  d.properties.dtypes = FL_DTYPE_BIT(FL_FLOAT32);
  d.rules.emplace_back("aten::add.Tensor", OpRules{});
  d.rules.back().second.alignment = 128;
  OpFallback fallback;
  fallback.policy = "deny";
  d.fallbacks.emplace_back("aten::sort", fallback);
  ASSERT_TRUE(loaded(d).loaded) << last_report().reason;
  const Chip& chip = *Registry::get().chips().back();
  EXPECT_EQ(chip.name, "plain");
  EXPECT_EQ(chip.device_type, "plain_type");
  EXPECT_EQ(chip.policy, "warn");
  EXPECT_EQ(chip.rules.at("aten::add.Tensor").alignment, 128U);
  EXPECT_EQ(chip.fallbacks.at("aten::sort").policy, "deny");
  EXPECT_EQ(chip.devices[0]->properties.dtypes, FL_DTYPE_BIT(FL_FLOAT32));
  EXPECT_TRUE(chip.devices[0]->host_coherent);
  // Once more: the library is taken.
  d.name = "again";
  EXPECT_NE(loaded(d).reason.find("has been loaded already"), std::string::npos) << last_report().reason;
}

TEST(Described, APluginKeepsItsTableAndGetsRules) {
  Described d = described({});
  d.library = FAKES_DIR "/good.so";
  d.required_rules = {"aten::not_in_its_table"};
  EXPECT_NE(loaded(d).reason.find("aten::not_in_its_table"), std::string::npos) << last_report().reason;
  d.required_rules.clear();
  d.kernels = {axpy()};
  EXPECT_NE(loaded(d).reason.find("leave out signature"), std::string::npos) << last_report().reason;
  d.kernels.clear();
  d.defaults.alignment = 64;
  d.device_type = "good_type";
  ASSERT_TRUE(loaded(d).loaded) << last_report().reason;
  const Chip& chip = *Registry::get().chips().back();
  EXPECT_EQ(chip.name, "good");
  EXPECT_EQ(chip.device_type, "good_type");
  ASSERT_FALSE(chip.kernels.empty());
  EXPECT_EQ(chip.rules.at(chip.kernels[0].op).alignment, 64U);
}

}  // namespace
}  // namespace torch_fl::runtime
