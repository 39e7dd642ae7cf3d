// SPDX-License-Identifier: Apache-2.0
// A plain C library as a chip: its functions are kernels, its memory is the host's or its own. Private to the runtime.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "c_function.h"
#include "chip_slots.h"
#include "description.h"

namespace torch_fl::runtime {

class LibraryChip;

/// One operator, computed by a C function for each element type.
class LibraryKernel {
 public:
  LibraryKernel(LibraryChip& chip, void* library, const DescribedKernel& described);
  fl_kernel row();

 private:
  static fl_status run(const fl_call* call);
  static fl_status supports(const fl_call* call);
  fl_status run_on(const fl_call& call) const;
  bool serves(const fl_call& call, std::string* why) const;
  const BoundFunction* function_for(fl_dtype dtype) const;
  bool may_start(const fl_call& call, std::string* why) const;
  bool may_store(const BoundFunction& function, const fl_call& call, std::string* why) const;
  fl_status start_output(const fl_call& call, std::string* why) const;
  fl_status store(const BoundFunction& function, const CValue& result, const fl_call& call) const;
  void bind(void* library);

  LibraryChip& chip_;
  const DescribedKernel described_;
  std::array<std::shared_ptr<const BoundFunction>, 64> by_type_;
};

class LibraryChip : public HostedChip {
 public:
  /// Throws Error for what the library does not have, or what cannot be called. `library` is what dlopen returned.
  LibraryChip(const Described& description, void* library);

  fl_status count(int32_t* count) override;
  fl_status properties(int32_t index, fl_device_properties* properties) override;
  fl_status open(int32_t index, fl_device* device) override;
  fl_status synchronize(fl_device device) override;
  fl_status alloc(fl_device device, uint64_t bytes, fl_address* address) override;
  fl_status free(fl_device device, fl_address address) override;
  fl_status copy(fl_device device, fl_address dst, fl_address src, uint64_t bytes, fl_copy_kind kind) override;
  fl_status fill(fl_device device, fl_address dst, const void* pattern, uint32_t pattern_bytes,
                 uint64_t count) override;
  fl_status info(fl_device device, uint64_t* free_bytes, uint64_t* total_bytes) override;

  bool host_coherent() const { return host_coherent_; }
  /// What an integer result of `function` means; sets the message of a failure.
  fl_status meaning(const CFunction& function, CType type, const CValue& result) const;
  /// After a kernel, where the host may read its results at once.
  fl_status finish_kernel(fl_device device);

 private:
  struct RuntimeFunction {
    CFunction function;
    std::unique_ptr<BoundFunction> bound;
    explicit operator bool() const { return bound != nullptr; }
  };
  RuntimeFunction bind(const CFunction& function, void* library) const;
  fl_status call(const RuntimeFunction& function, std::initializer_list<int64_t> arguments, CValue* result) const;
  static int32_t index_of(fl_device device);

  const fl_device_properties properties_;
  const bool host_coherent_;
  const StatusCodes status_;
  const int32_t devices_;
  RuntimeFunction count_, init_, alloc_, free_, copy_, synchronize_;
  std::vector<std::unique_ptr<LibraryKernel>> library_kernels_;

  std::mutex mutex_;
  std::unordered_map<fl_address, uint64_t> allocated_;  ///< bytes, of host memory
  uint64_t used_ = 0;
};

/// The function of that name as an address. Throws Error that names `where` (place in a descriptor) and the library.
void* required_symbol(void* library, const std::string& symbol, const std::string& where);
/// The rows of kernels that are fl_kernel_fn already.
std::vector<fl_kernel> native_rows(const std::vector<DescribedKernel>& kernels, void* library);

}  // namespace torch_fl::runtime
