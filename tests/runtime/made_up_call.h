// SPDX-License-Identifier: Apache-2.0
// Calls and programs that tests make up.
#pragma once

#include <deque>
#include <vector>

#include "expression.h"

namespace torch_fl::runtime {

inline Instruction step(int32_t code, int64_t k = 0, int32_t index = 0) {
  Instruction i;
  i.code = code, i.index = index, i.integer = k;
  return i;
}
inline Instruction real_step(double k) {
  Instruction i;
  i.code = kReal, i.real = k;
  return i;
}

class MadeUpCall {
 public:
  MadeUpCall() { call_.struct_size = sizeof call_, call_.compute_dtype = FL_FLOAT32; }

  fl_tensor* tensor(std::vector<int64_t> sizes, fl_dtype dtype = FL_FLOAT32, void* data = nullptr) {
    auto& kept = longs_.emplace_back(std::move(sizes));
    auto& strides = longs_.emplace_back(kept.size());
    fl_tensor& t = tensors_.emplace_back();
    t = {};
    t.struct_size = sizeof t;
    t.flags = FL_TENSOR_CONTIGUOUS;
    t.numel = 1;
    for (size_t d = kept.size(); d-- > 0; t.numel *= kept[d]) strides[d] = t.numel;
    t.ndim = static_cast<int32_t>(kept.size());
    t.sizes = kept.data();
    t.strides = strides.data();
    t.dtype = dtype;
    t.address = reinterpret_cast<fl_address>(data);
    return &t;
  }
  fl_value& add(fl_kind kind) {
    fl_value& v = values_.emplace_back();
    v = {};
    v.kind = kind;
    return v;
  }
  MadeUpCall& arg(const fl_tensor* t) {
    add(FL_TENSOR).u.tensor = t;
    return *this;
  }
  MadeUpCall& arg(int64_t i) {
    add(FL_INTEGER).u.i = i;
    return *this;
  }
  MadeUpCall& real(double d) {
    add(FL_REAL).u.d = d;
    return *this;
  }
  MadeUpCall& none() {
    add(FL_NONE);
    return *this;
  }
  MadeUpCall& ints(std::vector<int64_t> list) {
    fl_value& v = add(FL_INTEGERS);
    v.u.ints = longs_.emplace_back(std::move(list)).data();
    v.count = static_cast<uint32_t>(longs_.back().size());
    return *this;
  }
  MadeUpCall& list(std::vector<const fl_tensor*> tensors) {
    fl_value& v = add(FL_TENSORS);
    v.u.tensors = lists_.emplace_back(std::move(tensors)).data();
    v.count = static_cast<uint32_t>(lists_.back().size());
    return *this;
  }
  MadeUpCall& text(const char* s) {
    add(FL_STRING).u.s = s;
    return *this;
  }
  MadeUpCall& out(fl_tensor* t) {
    outs_.push_back(t);
    return *this;
  }
  fl_call& call() {
    call_.args = values_.data();
    call_.n_args = static_cast<uint32_t>(values_.size());
    call_.outs = outs_.data();
    call_.n_outs = static_cast<uint32_t>(outs_.size());
    return call_;
  }

 private:
  std::deque<std::vector<int64_t>> longs_;
  std::deque<fl_tensor> tensors_;
  std::deque<std::vector<const fl_tensor*>> lists_;
  std::vector<fl_value> values_;
  std::vector<fl_tensor*> outs_;
  fl_call call_{};
};

}  // namespace torch_fl::runtime
