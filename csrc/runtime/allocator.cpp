// SPDX-License-Identifier: Apache-2.0
// The caching allocator of one device.
//
// Memory comes from the chip in segments, each of one stream and of one pool (small or large requests). A segment is
// cut into blocks; free neighbours are joined again. Work on one stream is ordered, so a block freed by the host may be
// given out at once for the same stream; blocks that other streams used wait for events recorded when they were freed.
#include "allocator.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "bins.h"
#include "internal.h"
#include "lock.h"
#include "settings.h"
#include "timeline.h"

namespace torch_fl::runtime {
namespace {

constexpr uint64_t kMiB = 1 << 20;
constexpr uint64_t kMinQuantum = 512;  // block sizes are multiples of it, or of the device's alignment
constexpr uint64_t kMaxSmall = kMiB;   // requests up to this come from small segments
constexpr uint64_t kSmallSegment = 2 * kMiB;
constexpr uint64_t kLargeSegment = 20 * kMiB;  // for requests below kMaxShared
constexpr uint64_t kMaxShared = 10 * kMiB;     // larger requests get a segment of their own, rounded to kSegmentStep
constexpr uint64_t kSegmentStep = 2 * kMiB;
constexpr uint64_t kMinLargeRest = kMiB;  // a smaller rest of a large block is not split off

/// Without caching every block is an allocation of the chip's, of its own size, and ends when it is freed, so that what
/// checks memory sees each tensor by itself.
bool caching_wanted() {
  const char* text = std::getenv("TORCH_FL_MEMORY_CACHING");
  return text == nullptr || std::string_view(text) != "0";
}

struct Pool;

struct Segment {
  fl_address address = 0;
  uint64_t reserved = 0;  // what the chip gave, padding included
  Pool* pool = nullptr;
  Block::Internal* first = nullptr;
};

enum class State : uint8_t { kUnused, kFree, kLive, kPending };

}  // namespace

struct Block::Internal {
  Block block;
  uint64_t units = 0;  // block.size in quanta
  Segment* segment = nullptr;
  Internal *left = nullptr, *right = nullptr;  // neighbours by address
  Internal *next_free = nullptr, *prev_free = nullptr;
  State state = State::kUnused;
  uint32_t pending_events = 0;
  std::vector<StreamId> used_on;  // other streams than its own
};

namespace {

struct Pool {
  StreamId stream = 0;
  bool small = false;
  Bins<Block::Internal> bins;
};
struct StreamPools {
  Pool small, large;
};

}  // namespace

struct Allocator::Impl {
  using Node = Block::Internal;
  struct Pending {
    fl_event event;
    Node* node;
  };

  explicit Impl(Device& device);
  Block* allocate(uint64_t bytes, StreamId stream);
  void free(Node* node) noexcept;
  void free_late() noexcept;
  void free_locked(Node* node) noexcept;
  void empty_cache();
  Node* find(fl_address address) const;

  Pool& pool(StreamId stream, bool small);
  Node* grow(Pool& pool, uint64_t bytes);
  Node* add_segment(Pool& pool, uint64_t bytes);
  fl_address raw_alloc(uint64_t bytes);
  uint64_t raw_size(uint64_t bytes) const;
  uint64_t segment_size(bool small, uint64_t bytes) const;
  void split(Node* node, uint64_t units);
  Node* join(Node* node);
  void make_available(Node* node);
  void insert_free(Node* node);
  void remove_free(Node* node);
  bool defer(Node* node) noexcept;
  void poll_pending();
  void wait_pending();
  void event_done(const Pending& pending);
  bool release_unused();
  void release_segment(Segment* segment);
  Node* new_node();
  void recycle(Node* node);
  [[noreturn]] void out_of_memory(uint64_t bytes);

  Device& device;
  const bool caching = caching_wanted();
  const uint64_t quantum, padding, granularity, max_allocation, total;
  mutable std::mutex mutex;
  std::vector<std::unique_ptr<StreamPools>> pools;  // by stream
  std::map<fl_address, std::unique_ptr<Segment>> segments;
  std::unordered_map<StreamId, std::deque<Pending>> pending;
  size_t n_pending = 0;
  EventPool events;
  std::deque<Node> nodes;
  Node* spare_nodes = nullptr;
  std::vector<Node*> late;
  MemoryStats stats;
  double fraction = 1.0;
  std::string chip_said;  // with the last out-of-memory of the chip
};

Allocator::Impl::Impl(Device& device)
    : device(device),
      quantum(caching ? std::max(kMinQuantum, device.properties.alignment)
                      : std::max<uint64_t>(1, device.properties.size_granularity)),
      padding(device.properties.padding),
      granularity(std::max<uint64_t>(1, device.properties.size_granularity)),
      max_allocation(device.properties.max_allocation),
      total(device.properties.total_memory),
      events(device) {}

Block* Allocator::Impl::allocate(uint64_t bytes, StreamId stream) {
  if (bytes == 0) throw Error(FL_INVALID_ARGUMENT, "an allocation needs at least 1 byte, but 0 were asked for");
  device.handle();  // throws where the device cannot work
  const Lock lock(mutex);
  free_late();
  if (bytes > total) out_of_memory(bytes);
  const uint64_t units = (bytes + quantum - 1) / quantum;
  if (n_pending != 0) poll_pending();
  Pool& from = pool(stream, units * quantum <= kMaxSmall);
  Node* node = from.bins.find(units);
  if (node == nullptr) node = grow(from, bytes);
  remove_free(node);
  const uint64_t rest = (node->units - units) * quantum;
  if (rest != 0 && (from.small || rest > kMinLargeRest)) split(node, units);
  node->state = State::kLive;
  node->block.requested = bytes;
  const auto size = static_cast<int64_t>(node->block.size);
  increase(stats.allocated_bytes, size);
  increase(stats.active_bytes, size);
  increase(stats.requested_bytes, static_cast<int64_t>(bytes));
  increase(stats.allocations, 1);
  increase(stats.active_blocks, 1);
  return &node->block;
}

void Allocator::Impl::free(Node* node) noexcept {
  if (bad_fork.load(std::memory_order_relaxed)) return;
  if (Lock::held(mutex)) return late.push_back(node);
  const Lock lock(mutex);
  free_late();
  free_locked(node);
}

/// What the chip's own functions freed while they were called.
void Allocator::Impl::free_late() noexcept {
  while (!late.empty()) {
    Node* node = late.back();
    late.pop_back();
    free_locked(node);
  }
}

void Allocator::Impl::free_locked(Node* node) noexcept {
  if (node->state != State::kLive) {
    log(FL_LOG_ERROR, "a block of device fl:" + std::to_string(device.index) + " was freed twice; ignored");
    return;
  }
  const auto size = static_cast<int64_t>(node->block.size);
  decrease(stats.allocated_bytes, size);
  decrease(stats.requested_bytes, static_cast<int64_t>(node->block.requested));
  decrease(stats.allocations, 1);
  if (!node->used_on.empty() && defer(node)) return;
  make_available(node);
  if (caching || !device.usable()) return;
  try {
    release_unused();
  } catch (const std::exception& error) {
    log(FL_LOG_WARNING, error.what());
  }
}

/// The pools of a stream, made on its first allocation.
Pool& Allocator::Impl::pool(StreamId stream, bool small) {
  const auto i = static_cast<size_t>(stream);
  if (i >= pools.size() || pools[i] == nullptr) {
    device.stream(stream);  // throws unless it exists
    if (i >= pools.size()) pools.resize(i + 1);
    pools[i] = std::make_unique<StreamPools>();
    pools[i]->small.stream = pools[i]->large.stream = stream;
    pools[i]->small.small = true;
  }
  return small ? pools[i]->small : pools[i]->large;
}

// ---- Segments -----------------------------------------------------------------------------------------------------

uint64_t Allocator::Impl::raw_size(uint64_t bytes) const { return round_up(bytes + padding, granularity); }

uint64_t Allocator::Impl::segment_size(bool small, uint64_t bytes) const {
  if (!caching) return bytes;
  const uint64_t wanted = small ? kSmallSegment : bytes < kMaxShared ? kLargeSegment : round_up(bytes, kSegmentStep);
  const uint64_t size = round_up(wanted, quantum);
  return raw_size(size) <= max_allocation ? size : bytes;
}

/// A free node of at least `bytes`, in its bin, from a new segment.
Block::Internal* Allocator::Impl::grow(Pool& pool, uint64_t bytes) {
  const uint64_t needed = round_up(bytes, quantum);
  if (raw_size(needed) > max_allocation) out_of_memory(bytes);
  const uint64_t preferred = segment_size(pool.small, needed);
  if (Node* node = add_segment(pool, preferred)) return node;
  // Out of memory. First what other streams still hold, then what the cache holds, then the bare request.
  wait_pending();
  if (Node* node = pool.bins.find(needed / quantum)) return node;
  ++stats.alloc_retries;
  release_unused();
  if (Node* node = add_segment(pool, preferred)) return node;
  if (preferred != needed) {
    if (Node* node = add_segment(pool, needed)) return node;
  }
  out_of_memory(bytes);
}

/// Null when the chip is out of memory or the process at its limit.
Block::Internal* Allocator::Impl::add_segment(Pool& pool, uint64_t bytes) {
  const uint64_t raw = raw_size(bytes);
  const fl_address address = raw_alloc(raw);
  if (address == 0) return nullptr;
  auto segment = std::make_unique<Segment>(Segment{address, raw, &pool, new_node()});
  Node* node = segment->first;
  node->block.address = address;
  node->block.size = bytes;
  node->units = bytes / quantum;
  node->segment = segment.get();
  node->block.stream = pool.stream;
  segments.emplace(address, std::move(segment));
  increase(stats.reserved_bytes, static_cast<int64_t>(raw));
  increase(stats.segments, 1);
  ++stats.device_allocs;
  insert_free(node);
  return node;
}

fl_address Allocator::Impl::raw_alloc(uint64_t bytes) {
  chip_said.clear();
  const auto reserved = static_cast<double>(stats.reserved_bytes.current);
  if (fraction < 1.0 && reserved + static_cast<double>(bytes) > fraction * static_cast<double>(total)) {
    chip_said = "this process may use " + format_bytes(static_cast<uint64_t>(fraction * static_cast<double>(total))) +
                " of it (its memory_fraction)";
    return 0;
  }
  const uint64_t limit = settings.pool_bytes.load(std::memory_order_relaxed);
  if (limit != 0 && static_cast<uint64_t>(stats.reserved_bytes.current) + bytes > limit) {
    chip_said = "the setting memory_pool_size lets torch-fl hold " + format_bytes(limit) + " of it";
    return 0;
  }
  fl_address address = 0;
  fl_status status = FL_OK;
  {
    const RuntimeCall seen(device, -1, "flMalloc", bytes);
    status = device.chip.memory.alloc(device.handle(), bytes, &address);
  }
  if (status == FL_OUT_OF_MEMORY) {
    chip_said = take_message_for(status);
    return 0;
  }
  device.check(status, "allocating memory");
  if (address == 0 || address % device.properties.alignment != 0) {
    char text[160];
    std::snprintf(text, sizeof text,
                  "alloc returned the address 0x%" PRIx64 ", but a multiple of %" PRIu64 " other than 0 was expected",
                  address, device.properties.alignment);
    set_plugin_message(FL_INTERNAL, text);
    device.fail(FL_INTERNAL, "allocating memory");
  }
  return address;
}

/// Gives every wholly free segment back to the chip. Work that used it may still run, so the device is awaited first.
bool Allocator::Impl::release_unused() {
  std::vector<Segment*> unused;
  for (auto& [address, segment] : segments) {
    const Node* first = segment->first;
    if (first->state == State::kFree && first->right == nullptr) unused.push_back(segment.get());
  }
  if (unused.empty()) return false;
  device.synchronize();
  ++stats.sync_all_streams;
  for (Segment* segment : unused) release_segment(segment);
  return true;
}

void Allocator::Impl::release_segment(Segment* segment) {
  {
    const RuntimeCall seen(device, -1, "flFree", segment->reserved);
    device.check(device.chip.memory.free(device.handle(), segment->address), "freeing memory");
  }
  remove_free(segment->first);
  recycle(segment->first);
  decrease(stats.reserved_bytes, static_cast<int64_t>(segment->reserved));
  decrease(stats.segments, 1);
  ++stats.device_frees;
  segments.erase(segment->address);
}

void Allocator::Impl::empty_cache() {
  if (!device.opened()) return;
  device.handle();
  const Lock lock(mutex);
  wait_pending();
  release_unused();
}

// ---- Blocks -------------------------------------------------------------------------------------------------------

Block::Internal* Allocator::Impl::new_node() {
  Node* node = spare_nodes;
  if (node != nullptr) {
    spare_nodes = node->next_free;
  } else {
    node = &nodes.emplace_back();
    node->block.device = &device;
    node->block.internal = node;
  }
  node->left = node->right = node->next_free = node->prev_free = nullptr;
  return node;
}

void Allocator::Impl::recycle(Node* node) {
  node->state = State::kUnused;
  node->next_free = spare_nodes;
  spare_nodes = node;
}

/// Cuts what is beyond `units` off a node that is in no bin, and makes it available.
void Allocator::Impl::split(Node* node, uint64_t units) {
  Node* rest = new_node();
  rest->segment = node->segment;
  rest->block.stream = node->block.stream;
  rest->units = node->units - units;
  rest->block.size = rest->units * quantum;
  rest->block.address = node->block.address + units * quantum;
  rest->left = node;
  rest->right = node->right;
  if (rest->right != nullptr) rest->right->left = rest;
  node->right = rest;
  node->units = units;
  node->block.size = units * quantum;
  insert_free(rest);
}

/// Joins a node that is in no bin with its free neighbours.
Block::Internal* Allocator::Impl::join(Node* node) {
  Node* right = node->right;
  if (right != nullptr && right->state == State::kFree) {
    remove_free(right);
    node->units += right->units;
    node->right = right->right;
    if (node->right != nullptr) node->right->left = node;
    recycle(right);
  }
  Node* left = node->left;
  if (left != nullptr && left->state == State::kFree) {
    remove_free(left);
    left->units += node->units;
    left->right = node->right;
    if (left->right != nullptr) left->right->left = left;
    recycle(node);
    node = left;
  }
  node->block.size = node->units * quantum;
  return node;
}

void Allocator::Impl::make_available(Node* node) {
  decrease(stats.active_bytes, static_cast<int64_t>(node->block.size));
  decrease(stats.active_blocks, 1);
  insert_free(join(node));
}

void Allocator::Impl::insert_free(Node* node) {
  node->state = State::kFree;
  node->segment->pool->bins.insert(node);
  if (node->left == nullptr && node->right == nullptr) return;
  increase(stats.inactive_split_blocks, 1);
  increase(stats.inactive_split_bytes, static_cast<int64_t>(node->block.size));
}

void Allocator::Impl::remove_free(Node* node) {
  node->segment->pool->bins.remove(node);
  if (node->left == nullptr && node->right == nullptr) return;
  decrease(stats.inactive_split_blocks, 1);
  decrease(stats.inactive_split_bytes, static_cast<int64_t>(node->block.size));
}

Block::Internal* Allocator::Impl::find(fl_address address) const {
  const Lock lock(mutex);
  auto after = segments.upper_bound(address);
  if (after == segments.begin()) return nullptr;
  for (Node* node = std::prev(after)->second->first; node != nullptr; node = node->right) {
    if (address < node->block.address || address - node->block.address >= node->block.size) continue;
    return node->state == State::kLive ? node : nullptr;
  }
  return nullptr;
}

// ---- Blocks that other streams used -------------------------------------------------------------------------------

/// Records events on the other streams; true if the node must wait for them.
bool Allocator::Impl::defer(Node* node) noexcept {
  node->state = State::kPending;
  try {
    while (device.usable() && !node->used_on.empty()) {
      const StreamId stream = node->used_on.back();
      std::deque<Pending>& queue = pending[stream];
      queue.push_back({events.record(stream), node});
      ++node->pending_events;
      ++n_pending;
      node->used_on.pop_back();
    }
  } catch (const std::exception& error) {
    // Nobody can tell when the other streams are done, so the block is never given out again.
    log(FL_LOG_WARNING, std::string("a block of memory is lost: ") + error.what());
    ++node->pending_events;
  }
  node->used_on.clear();
  return node->pending_events != 0;
}

void Allocator::Impl::event_done(const Pending& done) {
  events.give(done.event);
  --n_pending;
  if (--done.node->pending_events == 0) make_available(done.node);
}

void Allocator::Impl::poll_pending() {
  for (auto& [stream, queue] : pending) {
    while (!queue.empty() && device.event_query(queue.front().event)) {
      const Pending done = queue.front();
      queue.pop_front();
      event_done(done);
    }
  }
}

void Allocator::Impl::wait_pending() {
  for (auto& [stream, queue] : pending) {
    while (!queue.empty()) {
      device.event_synchronize(queue.front().event);
      const Pending done = queue.front();
      queue.pop_front();
      event_done(done);
    }
  }
}

// ---- Out of memory ------------------------------------------------------------------------------------------------

void Allocator::Impl::out_of_memory(uint64_t bytes) {
  ++stats.ooms;
  const auto allocated = static_cast<uint64_t>(stats.allocated_bytes.current);
  const auto reserved = static_cast<uint64_t>(stats.reserved_bytes.current);
  uint64_t free_bytes = reserved < total ? total - reserved : 0, total_bytes = total;
  const fl_memory_api& memory = device.chip.memory;
  if (memory.info != nullptr && memory.info(device.handle(), &free_bytes, &total_bytes) != FL_OK) take_plugin_message();
  std::string text =
      "fl out of memory. Tried to allocate " + format_bytes(bytes) + ". fl:" + std::to_string(device.index) +
      " has a total capacity of " + format_bytes(total_bytes) + " of which " + format_bytes(free_bytes) +
      " is free. Of the allocated memory " + format_bytes(allocated) + " is allocated by PyTorch, and " +
      format_bytes(reserved > allocated ? reserved - allocated : 0) + " is reserved by PyTorch but unallocated.";
  if (max_allocation < total && (bytes > max_allocation || raw_size(bytes) > max_allocation)) {
    text += " The largest single allocation of this device is " + format_bytes(max_allocation) + ".";
  }
  if (!chip_said.empty()) text += " (" + chip_said + ")";
  throw Error(FL_OUT_OF_MEMORY, text + " [chip " + device.chip.name + "]");
}

// ---- The public face ----------------------------------------------------------------------------------------------

Allocator::Allocator(Device& device) : impl_(std::make_unique<Impl>(device)) {}

Allocator::~Allocator() {
  if (!impl_->device.usable()) return;
  try {
    empty_cache();
  } catch (const std::exception& error) {
    log(FL_LOG_WARNING, error.what());
  }
  impl_->events.clear();
}

Block* Allocator::allocate(uint64_t bytes, StreamId stream) { return impl_->allocate(bytes, stream); }

void Allocator::free(Block* block) noexcept {
  if (block != nullptr) impl_->free(block->internal);
}

void Allocator::record_stream(Block* block, StreamId stream) {
  if (block == nullptr || stream == block->stream) return;
  impl_->device.stream(stream);  // throws unless it exists
  const Lock lock(impl_->mutex);
  std::vector<StreamId>& used = block->internal->used_on;
  if (std::find(used.begin(), used.end(), stream) == used.end()) used.push_back(stream);
}

void Allocator::empty_cache() { impl_->empty_cache(); }

MemoryStats Allocator::stats() const {
  if (Lock::held(impl_->mutex)) return impl_->stats;  // a profiler is told of what the chip's own functions free
  const Lock lock(impl_->mutex);
  return impl_->stats;
}
void Allocator::reset_peak() {
  const Lock lock(impl_->mutex);
  runtime::reset_peak(impl_->stats);
}
void Allocator::reset_accumulated() {
  const Lock lock(impl_->mutex);
  runtime::reset_accumulated(impl_->stats);
}

Block* Allocator::find(fl_address address) const {
  Block::Internal* node = impl_->find(address);
  return node != nullptr ? &node->block : nullptr;
}

void Allocator::set_memory_fraction(double fraction) {
  if (!(fraction >= 0.0 && fraction <= 1.0)) {
    throw Error(FL_INVALID_ARGUMENT, "the memory fraction must be from 0 to 1, but is " + std::to_string(fraction));
  }
  const Lock lock(impl_->mutex);
  impl_->fraction = fraction;
}
double Allocator::memory_fraction() const {
  const Lock lock(impl_->mutex);
  return impl_->fraction;
}

}  // namespace torch_fl::runtime
