// SPDX-License-Identifier: Apache-2.0
// One variadic template: the kernel PyTorch sees for every overload that a backend may provide.
#pragma once

#include <ATen/core/stack.h>
#include <torch/library.h>

#include <tuple>
#include <type_traits>
#include <utility>

#include "call.h"

namespace torch_fl::glue {

template <class T>
struct is_tensor_tuple : std::false_type {};
template <class... T>
struct is_tensor_tuple<std::tuple<T...>> : std::bool_constant<(std::is_same_v<T, at::Tensor> && ...)> {};
template <class T>
struct is_ref_tuple : std::false_type {
  static constexpr size_t size = 0;
};
template <class... T>
struct is_ref_tuple<std::tuple<T...>> : std::bool_constant<(std::is_same_v<T, at::Tensor&> && ...)> {
  static constexpr size_t size = sizeof...(T);
};

/// For overloads without a C++ meta function.
struct NoMeta {
  static constexpr bool present = false;
};
template <auto Fn>
struct Meta {
  static constexpr bool present = true;
  template <class... A>
  static decltype(auto) call(A&&... a) {
    return Fn(std::forward<A>(a)...);
  }
};

inline void append(std::vector<at::Tensor>& list, const at::Tensor& t) { list.push_back(t); }
inline void append(std::vector<at::Tensor>& list, const std::vector<at::Tensor>& t) {
  list.insert(list.end(), t.begin(), t.end());
}
template <class... T>
inline void append(std::vector<at::Tensor>& list, const std::tuple<T...>& t) {
  std::apply([&](const auto&... x) { (append(list, x), ...); }, t);
}

template <class T>
inline void push_boxed(Stack& stack, T&& value) {
  torch::jit::push(stack, std::forward<T>(value));
}
inline void push_boxed(Stack& stack, const at::ITensorListRef& value) {
  c10::List<at::Tensor> list;
  for (const auto& t : value) list.push_back(t);
  stack.emplace_back(std::move(list));
}

template <class Op, class MetaFn, class Schema = typename Op::schema>
struct Trampoline;

template <class Op, class MetaFn, class R, class... A>
struct Trampoline<Op, MetaFn, R(A...)> {
  using Args = std::tuple<std::add_lvalue_reference_t<std::remove_reference_t<A>>...>;
  static constexpr size_t kArgs = sizeof...(A);
  static constexpr size_t kPacked = kArgs == 0 ? 1 : kArgs;

  static void box(const void* typed, Stack& stack) {
    std::apply([&](auto&... a) { (push_boxed(stack, a), ...); }, *static_cast<const Args*>(typed));
  }

  static void meta(const void* typed, std::vector<at::Tensor>& outputs) {
    if constexpr (MetaFn::present && !std::is_void_v<R>) {
      std::apply([&](auto&... a) { append(outputs, MetaFn::call(a...)); }, *static_cast<const Args*>(typed));
    }
  }

  // The I-th mutable tensor argument counted from the end (0 = last) or, in-place, the first.
  template <size_t I = kArgs>
  static at::Tensor& mutable_from_end(Args& args, size_t skip) {
    if constexpr (I == 0) {
      TORCH_INTERNAL_ASSERT(false, "no mutable argument");
    } else {
      using T = std::tuple_element_t<I - 1, std::tuple<A...>>;
      if constexpr (std::is_same_v<T, at::Tensor&>) {
        if (skip == 0) return std::get<I - 1>(args);
        return mutable_from_end<I - 1>(args, skip - 1);
      } else {
        return mutable_from_end<I - 1>(args, skip);
      }
    }
  }
  static constexpr size_t kMutable = (size_t{0} + ... + (std::is_same_v<A, at::Tensor&> ? 1 : 0));
  static constexpr bool kInPlace = Op::name[std::string_view(Op::name).size() - 1] == '_';

  template <size_t... I>
  static R ref_tuple(Args& args, std::index_sequence<I...>) {
    constexpr size_t n = sizeof...(I);
    return R(mutable_from_end(args, n - 1 - I)...);
  }

  static R call(A... a) {
    static Entry& entry = entry_for(Op::name, Op::overload_name);
    Args args(a...);
    PackedArg packed[kPacked];
    LazyStore store;
    size_t i = 0;
    ((pack(packed[i++], store, a)), ...);
    Call call{entry, packed, kArgs, store};
    call.typed = &args;
    call.box = &box;
    if constexpr (MetaFn::present) call.meta = &meta;
    if constexpr (std::is_same_v<R, at::Tensor>) {
      at::Tensor out;
      run(call, &out);
      if (call.results_on_stack) return std::move((*call.stack)[0]).toTensor();
      return out;
    } else if constexpr (is_tensor_tuple<R>::value) {
      constexpr size_t n = std::tuple_size_v<R>;
      at::Tensor outs[n];
      run(call, outs);
      if (call.results_on_stack) {
        for (size_t k = 0; k < n; ++k) outs[k] = std::move((*call.stack)[k]).toTensor();
      }
      return take(outs, std::make_index_sequence<n>());
    } else if constexpr (std::is_void_v<R>) {
      run(call, nullptr);
    } else if constexpr (std::is_same_v<R, at::Tensor&> && kMutable > 0) {
      run(call, nullptr);
      return mutable_from_end(args, kInPlace ? kMutable - 1 : 0);
    } else if constexpr (is_ref_tuple<R>::value && kMutable >= is_ref_tuple<R>::size) {
      run(call, nullptr);
      return ref_tuple(args, std::make_index_sequence<is_ref_tuple<R>::size>());
    } else if constexpr (std::is_reference_v<R> || is_ref_tuple<R>::value) {
      static_assert(!sizeof(R*), "unsupported return type");
    } else {
      run(call, nullptr);
      TORCH_INTERNAL_ASSERT(call.results_on_stack, Op::name, ": a kernel route for results that are not tensors");
      return Unbox<R>::from(*call.stack);
    }
  }

 private:
  template <size_t... I>
  static R take(at::Tensor* outs, std::index_sequence<I...>) {
    return R(std::move(outs[I])...);
  }
  template <class T>
  struct Unbox {
    static T from(Stack& stack) { return std::move(stack[0]).to<T>(); }
  };
  template <class... T>
  struct Unbox<std::tuple<T...>> {
    static std::tuple<T...> from(Stack& stack) { return from(stack, std::index_sequence_for<T...>()); }
    template <size_t... I>
    static std::tuple<T...> from(Stack& stack, std::index_sequence<I...>) {
      return std::tuple<T...>(std::move(stack[I]).template to<T>()...);
    }
  };
};

struct TrampolineRow {
  const char* name;  ///< "add.Tensor"
  void (*install)(torch::Library& library, const char* name);
  bool composite;  ///< only installed when a chip has a kernel for it
};

template <class Op, class MetaFn>
void install(torch::Library& library, const char* name) {
  library.impl(name, TORCH_FN((Trampoline<Op, MetaFn>::call)));
}

}  // namespace torch_fl::glue
