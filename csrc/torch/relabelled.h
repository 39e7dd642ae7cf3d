// SPDX-License-Identifier: Apache-2.0
// The host route's short way, where the host can address the chip's memory: the CPU operator works in that memory.
#pragma once

#include <c10/util/SmallVector.h>

#include "router.h"
#include "unboxed.h"

namespace torch_fl::glue {

/// Kept in a plan: CPU tensors that are pointed at the memory of each call. Nothing is staged, copied or boxed twice.
class Relabelled {
 public:
  /// Null where the call must go the long way (host_route.h): its outputs are not known beforehand, its arguments share
  /// memory with what it writes, or it needs care of another kind.
  static std::shared_ptr<Relabelled> make(const Call& call);

  /// The operator has led back to itself; this call must go the long way.
  bool running() const { return running_; }

  /// Functional results go to `outs`. Throws what the CPU kernel throws.
  void run(Call& call, at::Tensor* outs);

 private:
  struct Shell {
    uint32_t argument;
    bool mutated;
    at::Tensor host;
  };
  struct Output {
    at::ScalarType dtype;
    at::DimVector sizes, strides;
    at::Tensor host;
  };
  explicit Relabelled(c10::OperatorHandle op) : op_(std::move(op)), unboxed_(UnboxedKernel::make(op_)) {}
  bool add_arguments(const Call& call);
  bool add_argument(const PackedArg& a, const ArgInfo& info, uint32_t i);
  bool add_tensor(const at::Tensor& t, const ArgInfo& info, uint32_t i);
  bool add_outputs(const Call& call);
  void point_shells(Call& call, at::Tensor* outs);
  void call_unboxed(const Call& call);
  void call_boxed(const Call& call);
  static void settle(Shell& shell, const at::Tensor& target);

  c10::OperatorHandle op_;                  ///< the overload, or the out= form of a functional one
  std::unique_ptr<UnboxedKernel> unboxed_;  ///< null: called with a stack
  std::vector<Shell> shells_;
  std::vector<Output> outputs_;
  c10::SmallVector<UnboxedArgument, 8> arguments_;
  // For the call with a stack. The arguments that the signature settles are boxed once. Device tensors are never boxed:
  // to copy one that Python holds costs a turn with Python's lock.
  Stack fixed_;
  std::vector<uint32_t> varying_;  ///< scalars, and tensors of the CPU
  Stack stack_;                    ///< of one call; its memory is kept
  bool running_ = false;
};

}  // namespace torch_fl::glue
