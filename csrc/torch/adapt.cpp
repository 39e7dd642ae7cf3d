// SPDX-License-Identifier: Apache-2.0
#include "adapt.h"

#include <ATen/EmptyTensor.h>

#include <algorithm>
#include <array>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "copy.h"
#include "device_allocator.h"
#include "router.h"

namespace torch_fl::glue {

std::atomic<uint64_t> g_kept{0};

namespace {

std::atomic<uint64_t> g_conversions{0}, g_reuses{0};

/// Which conversion: of what, as it is now, into what.
struct Key {
  const c10::StorageImpl* storage;
  int64_t offset;
  std::vector<int64_t> sizes, strides;
  at::ScalarType from;
  bool conjugate, negative;
  uint32_t version;  ///< 0 where the tensor counts none
  Adaptation wanted;

  bool operator==(const Key& o) const {
    return storage == o.storage && offset == o.offset && version == o.version && from == o.from &&
           conjugate == o.conjugate && negative == o.negative && wanted.dtype == o.wanted.dtype &&
           wanted.format == o.wanted.format && wanted.alignment == o.wanted.alignment && sizes == o.sizes &&
           strides == o.strides;
  }
};

uint32_t version_of(const at::Tensor& t) { return t.is_inference() ? 0 : static_cast<uint32_t>(t._version()); }

Key key_of(const at::Tensor& t, const Adaptation& wanted) {
  return {t.storage().unsafeGetStorageImpl(),
          t.storage_offset(),
          t.sizes().vec(),
          t.strides().vec(),
          t.scalar_type(),
          t.is_conj(),
          t.is_neg(),
          version_of(t),
          wanted};
}

struct Kept {
  Key key;
  runtime::Device* device;
  fl_address begin;  ///< of what was converted
  at::Tensor converted;
  uint64_t bytes;
  runtime::StreamId stream;  ///< that converted, before `made`
  fl_event made;
  Kept(Key key_, runtime::Device& device_, const at::Tensor& src, at::Tensor converted_)
      : key(std::move(key_)),
        device(&device_),
        begin(device_address(src)),
        converted(std::move(converted_)),
        bytes(converted.storage().nbytes()),
        stream(runtime::current_stream(device_.index)),
        made(device_.event_create(false)) {
    device->event_record(made, stream);
  }
  Kept(const Kept&) = delete;
  Kept& operator=(const Kept&) = delete;
  ~Kept() { device->event_destroy(made); }
};

/// What was converted once, lately. The weak reference keeps the storage's address from being another one's.
struct Seen {
  Key key;
  c10::weak_intrusive_ptr<c10::StorageImpl> storage;
};

/// Kept tensors, the last used first. Freeing memory asks here, so what is let go outlives the lock: `gone` is declared
/// before it.
class Store {
 public:
  using List = std::list<Kept>;

  std::optional<at::Tensor> find(const Key& key, const runtime::Device& device) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto [first, last] = by_storage_.equal_range(key.storage);
    for (auto at = first; at != last; ++at) {
      if (at->second->device != &device || !(at->second->key == key)) continue;
      list_.splice(list_.begin(), list_, at->second);
      follow(list_.front());
      return list_.front().converted;
    }
    return std::nullopt;
  }

  /// True: this conversion was seen before. Else it is noted.
  bool seen(const Key& key, const c10::Storage& storage) {
    std::lock_guard<std::mutex> lock(mutex_);
    for (auto& entry : seen_) {
      if (entry.has_value() && entry->key == key && !entry->storage.expired()) return true;
    }
    seen_[next_seen_++ % seen_.size()].emplace(Seen{key, storage.getWeakStorageImpl()});
    return false;
  }

  /// A conversion under way: until it is kept, writes to its source are noticed.
  struct Pending {
    const runtime::Device* device;
    fl_address begin;
    bool written = false;
  };
  std::list<Pending>::iterator begin_keeping(const runtime::Device& device, fl_address begin) {
    std::lock_guard<std::mutex> lock(mutex_);
    pending_.push_front({&device, begin});
    publish();
    return pending_.begin();
  }

  /// `converted` is null where conversion failed.
  void keep(Key key, runtime::Device& device, const at::Tensor& src, const at::Tensor& converted,
            std::list<Pending>::iterator pending) {
    List fresh, gone;
    if (converted.defined()) fresh.emplace_front(std::move(key), device, src, converted);
    std::lock_guard<std::mutex> lock(mutex_);
    const bool written = pending->written;
    pending_.erase(pending);
    if (!fresh.empty() && fresh.front().bytes <= limit_ && !written) {
      bytes_ += fresh.front().bytes;
      list_.splice(list_.begin(), fresh);
      by_storage_.emplace(list_.front().key.storage, list_.begin());
      by_address_.emplace(list_.front().begin, list_.begin());
      while (bytes_ > limit_) remove(std::prev(list_.end()), gone);
    }
    publish();
  }

  void drop(const runtime::Device& device, fl_address begin, fl_address end) {
    List gone;
    std::lock_guard<std::mutex> lock(mutex_);
    for (auto& p : pending_) p.written |= p.device == &device && p.begin >= begin && p.begin < end;
    for (auto at = by_address_.lower_bound(begin); at != by_address_.end() && at->first < end;) {
      const auto entry = (at++)->second;
      if (entry->device == &device) remove(entry, gone);
    }
    publish();
  }

  bool drop_all() {
    List gone;
    std::lock_guard<std::mutex> lock(mutex_);
    for (auto& p : pending_) p.written = true;
    const bool any = !list_.empty();
    while (!list_.empty()) remove(list_.begin(), gone);
    publish();
    return any;
  }

  void limit(uint64_t bytes) {
    List gone;
    std::lock_guard<std::mutex> lock(mutex_);
    limit_ = bytes;
    while (bytes_ > limit_) remove(std::prev(list_.end()), gone);
    publish();
  }

  AdapterStats stats() {
    std::lock_guard<std::mutex> lock(mutex_);
    return {g_conversions.load(), g_reuses.load(), list_.size(), bytes_, limit_};
  }

 private:
  template <class Map, class K>
  static void erase(Map& map, const K& key, List::iterator entry) {
    const auto [first, last] = map.equal_range(key);
    for (auto at = first; at != last; ++at) {
      if (at->second != entry) continue;
      map.erase(at);
      return;
    }
  }
  void remove(List::iterator entry, List& gone) {
    bytes_ -= entry->bytes;
    erase(by_storage_, entry->key.storage, entry);
    erase(by_address_, entry->begin, entry);
    gone.splice(gone.begin(), list_, entry);
  }
  void publish() { g_kept.store(list_.size() + pending_.size()); }
  // Another stream than the one that converted waits for it, and the memory for that stream.
  static void follow(Kept& kept) {
    const runtime::StreamId stream = runtime::current_stream(kept.device->index);
    if (stream == kept.stream) return;
    kept.device->event_wait(kept.made, stream);
    if (runtime::Block* block = block_of(kept.converted)) kept.device->allocator().record_stream(block, stream);
  }

  std::mutex mutex_;
  List list_;
  std::list<Pending> pending_;
  std::unordered_multimap<const c10::StorageImpl*, List::iterator> by_storage_;
  std::multimap<fl_address, List::iterator> by_address_;
  std::array<std::optional<Seen>, 64> seen_;
  size_t next_seen_ = 0;
  uint64_t bytes_ = 0, limit_ = 256ull << 20;
};

// Never destroyed: tensors are freed until the process ends.
Store& store() {
  static auto* instance = new Store();
  return *instance;
}

// Memory that others may write to without asking the core is not kept.
bool owned(const at::Tensor& t) {
  const auto& data = t.storage().data_ptr();
  return data.get() != nullptr && device_allocator()->is_simple_data_ptr(data);
}

at::Tensor bits_copied(runtime::Device& device, const at::Tensor& src, uint64_t alignment) {
  at::Tensor dst = allocate_aligned(device, src.scalar_type(), src.sizes(), src.strides(), alignment);
  device.copy(runtime::current_stream(device.index), device_address(dst), device_address(src), extent_bytes(src),
              FL_COPY_DEVICE_TO_DEVICE);
  return dst;
}

at::Tensor convert(runtime::Device& device, const at::Tensor& src, const Adaptation& wanted) {
  g_conversions.fetch_add(1, std::memory_order_relaxed);
  if (wanted.format == at::MemoryFormat::Preserve) return bits_copied(device, src, wanted.alignment);
  if (wanted.alignment == 0) return converted(device, src, wanted.dtype, wanted.format);
  const at::Tensor meta =
      at::detail::empty_meta(src.sizes(), wanted.dtype, at::kStrided, at::Device(c10::kMeta), false, wanted.format);
  at::Tensor dst = allocate_aligned(device, wanted.dtype, meta.sizes(), meta.strides(), wanted.alignment);
  copy_into(dst, src, true);
  return dst;
}

at::Tensor convert_and_keep(runtime::Device& device, const at::Tensor& src, Key key) {
  const auto pending = store().begin_keeping(device, device_address(src));
  at::Tensor result;
  try {
    result = convert(device, src, key.wanted);
  } catch (...) {
    store().keep(std::move(key), device, src, {}, pending);
    throw;
  }
  store().keep(std::move(key), device, src, result, pending);
  return result;
}

}  // namespace

at::Tensor allocate_aligned(runtime::Device& device, at::ScalarType dtype, at::IntArrayRef sizes,
                            at::IntArrayRef strides, uint64_t alignment) {
  if (alignment <= 1) return allocate_tensor(device, dtype, sizes, strides);
  const auto item = static_cast<int64_t>(c10::elementSize(dtype));
  const auto bytes = static_cast<int64_t>(at::detail::computeStorageNbytes(sizes, strides, static_cast<size_t>(item)));
  const int64_t room[1] = {bytes + static_cast<int64_t>(alignment)};
  const int64_t dense[1] = {1};
  const at::Tensor raw = allocate_tensor(device, at::kByte, room, dense);
  const uint64_t past = device_address(raw) % alignment;
  const auto skip = static_cast<int64_t>(past == 0 ? 0 : alignment - past);
  TORCH_CHECK(skip % item == 0, "memory of ", device.chip.name, " is not aligned to its elements");
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(raw.storage()),
                                                               c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                                               c10::scalarTypeToTypeMeta(dtype));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  tensor.unsafeGetTensorImpl()->set_storage_offset(skip / item);
  return tensor;
}

at::Tensor adapted(runtime::Device& device, const at::Tensor& src, const Adaptation& wanted, bool* fresh) {
  *fresh = true;
  if (src.device().type() != c10::kPrivateUse1 || src.numel() == 0 || !owned(src)) return convert(device, src, wanted);
  Key key = key_of(src, wanted);
  if (g_kept.load(std::memory_order_relaxed) != 0) {
    if (auto found = store().find(key, device)) {
      g_reuses.fetch_add(1, std::memory_order_relaxed);
      *fresh = false;
      return *found;
    }
  }
  if (!store().seen(key, src.storage())) return convert(device, src, wanted);
  return convert_and_keep(device, src, std::move(key));
}

void drop_kept(const runtime::Device& device, fl_address begin, uint64_t bytes) {
  store().drop(device, begin, begin + bytes);
}

void tensor_changed(const at::Tensor& t) {
  if (C10_LIKELY(g_kept.load(std::memory_order_relaxed) == 0)) return;
  if (!t.defined() || t.device().type() != c10::kPrivateUse1 || !t.has_storage()) return;
  if (!owned(t)) {  // a window on somebody's memory: whose, only they know
    drop_all_kept();
    return;
  }
  const auto& storage = t.storage();
  drop_kept(runtime_device(t), reinterpret_cast<fl_address>(storage.data()), storage.nbytes());
}

bool drop_all_kept() { return store().drop_all(); }
void set_adapter_cache_bytes(uint64_t bytes) { store().limit(bytes); }
AdapterStats adapter_stats() { return store().stats(); }

}  // namespace torch_fl::glue
