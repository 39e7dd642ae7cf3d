// SPDX-License-Identifier: Apache-2.0
// The compiler table over the SDK's modules, in the dialect "c99".
#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

#include "plugin.h"

namespace fl_sim {
namespace {

static_assert(int{FL_ARG_ADDRESS} == int{SIM_ARGUMENT_ADDRESS}, "sizes are handed on as they are");

simDevice device_of(fl_device device) { return reinterpret_cast<simDevice>(device); }
simModule module_of(fl_module module) { return reinterpret_cast<simModule>(module); }

std::vector<std::string> arguments(const fl_compile_options* options) {
  std::vector<std::string> result;
  if (!FL_HAS(options, defines)) return result;
  for (uint32_t i = 0; i < options->n_defines; ++i) result.push_back(std::string("-D") + options->defines[i]);
  if (!FL_HAS(options, flags) || !options->flags) return result;
  std::istringstream flags(options->flags);
  for (std::string flag; flags >> flag;) result.push_back(flag);
  return result;
}

fl_status identity(fl_device, char* text, uint64_t capacity) { return check(simCompilerIdentity(text, capacity)); }

fl_status compile(fl_device device, const char* source, const fl_compile_options* options, fl_module* module) {
  try {
    const std::vector<std::string> texts = arguments(options);
    std::vector<const char*> pointers;
    for (const std::string& text : texts) pointers.push_back(text.c_str());
    return check(simModuleCompile(device_of(device), source, pointers.data(), static_cast<uint32_t>(pointers.size()),
                                  reinterpret_cast<simModule*>(module)));
  } catch (...) {
    return report_exception();
  }
}

fl_status save(fl_module module, void* binary, uint64_t* bytes) {
  return check(simModuleSave(module_of(module), binary, bytes));
}

fl_status load(fl_device device, const void* binary, uint64_t bytes, fl_module* module) {
  return check(simModuleLoad(device_of(device), binary, bytes, reinterpret_cast<simModule*>(module)));
}

fl_status release(fl_module module) { return check(simModuleRelease(module_of(module))); }

fl_status refuse(const char* entry, const char* what, uint64_t found, const char* expected) {
  char text[256];
  std::snprintf(text, sizeof text, "launch of %s: %s is %llu; expected %s", entry ? entry : "(null)", what,
                static_cast<unsigned long long>(found), expected);
  return fail(FL_INVALID_ARGUMENT, text);
}

fl_status launch_module(fl_device device, fl_stream stream, fl_module module, const char* entry, const fl_launch* l) {
  if (!FL_HAS(l, arg_sizes)) return fail(FL_INVALID_ARGUMENT, "launch: the struct is null or too short");
  if (l->work_dim < 1 || l->work_dim > 3) return refuse(entry, "work_dim", l->work_dim, "1 to 3");
  if (l->local_bytes) return refuse(entry, "local_bytes", l->local_bytes, "0: there is no local memory");
  uint64_t range[3] = {1, 1, 1};
  for (uint32_t d = 0; d < l->work_dim; ++d) {
    if (l->local_size[d] > 1) return refuse(entry, "local_size", l->local_size[d], "0 or 1");
    range[d] = l->global_size[d];
  }
  return check(simModuleLaunch(device_of(device), reinterpret_cast<simStream>(stream), module_of(module), entry, range,
                               l->n_args, l->args, l->arg_sizes));
}

constexpr fl_compiler_api kCompiler = {.struct_size = sizeof(fl_compiler_api),
                                       .reserved = 0,
                                       .dialect = "c99",
                                       .identity = identity,
                                       .compile = compile,
                                       .save = save,
                                       .load = load,
                                       .release = release,
                                       .launch = launch_module};

}  // namespace

const fl_compiler_api* compiler_table() noexcept { return &kCompiler; }

}  // namespace fl_sim
