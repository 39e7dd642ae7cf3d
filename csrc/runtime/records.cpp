// SPDX-License-Identifier: Apache-2.0
#include "records.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <new>
#include <unordered_map>
#include <utility>

#include "error.h"

namespace torch_fl::runtime {

int64_t now_ns() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

uint64_t thread_number() noexcept {
  static thread_local constinit uint64_t number = 0;
  if (number == 0) number = static_cast<uint64_t>(::syscall(SYS_gettid));
  return number;
}

namespace {

bool runs(const Records& records, uint32_t recording) { return recording != 0 && records.running() == recording; }

size_t hash_of(const Subject& subject) {
  size_t hash = std::hash<std::string>()(subject.op);
  const auto mix = [&](size_t value) { hash = (hash ^ value) * 0x9E3779B97F4A7C15ull; };
  for (const std::string* text : {&subject.overload, &subject.chip, &subject.route, &subject.reason}) {
    mix(std::hash<std::string>()(*text));
  }
  mix(static_cast<size_t>(subject.device));
  for (const auto& shape : subject.shapes) {
    mix(shape.size());
    for (const int64_t size : shape) mix(static_cast<size_t>(size));
  }
  for (const std::string& dtype : subject.dtypes) mix(std::hash<std::string>()(dtype));
  return hash;
}

}  // namespace

struct Records::State {
  std::mutex mutex;
  uint32_t last = 0;  ///< recordings so far
  size_t capacity = 0;
  std::deque<std::shared_ptr<RecordChunk>> chunks;  ///< by age
  Result result;
  std::unordered_multimap<size_t, uint32_t> numbers;  ///< of subjects, by hash

  // 0: not known.
  uint32_t find(const Subject& subject, size_t hash) const {
    const auto [first, last] = numbers.equal_range(hash);
    const auto known = std::find_if(first, last, [&](const auto& n) { return result.subjects[n.second] == subject; });
    return known != last ? known->second : 0;
  }

  uint32_t insert(Subject subject, size_t hash) {
    result.subjects.push_back(std::move(subject));
    const auto number = static_cast<uint32_t>(result.subjects.size() - 1);
    numbers.emplace(hash, number);
    return number;
  }

  // What is left of a subject when there are too many; as it was while there is room.
  bool simplify(Subject& subject) {
    const size_t kept = result.subjects.size(), room = room_for_subjects(capacity);
    if (kept <= room) return false;
    subject.shapes.clear();
    subject.dtypes.clear();
    subject.adapters.clear();
    if (kept > 2 * room) subject.reason.clear();
    return result.simplified = true;
  }

  // The oldest that nobody writes to, for another thread; null: room for one more, or all are being written to.
  std::shared_ptr<RecordChunk> oldest() {
    const auto found = std::find_if(chunks.begin(), chunks.end(), [](const auto& chunk) { return !chunk->open; });
    if (found == chunks.end()) return nullptr;
    // Chunks of threads that made few calls are nearly empty: there may be so many more than full ones.
    constexpr size_t kSparse = 1024;
    size_t kept = 0;  // without it
    for (auto chunk = chunks.begin(); chunk != chunks.end(); ++chunk) {
      if (chunk != found) kept += (*chunk)->count.load(std::memory_order_relaxed);
    }
    if (kept < capacity && chunks.size() <= capacity / RecordChunk::kSize + kSparse) return nullptr;
    std::shared_ptr<RecordChunk> chunk = std::move(*found);
    chunks.erase(found);
    result.dropped += chunk->count.load(std::memory_order_relaxed);
    return chunk;
  }
};

/// What a thread writes to. Between recordings it holds on to one chunk at most.
struct Records::Writer {
  uint32_t recording = 0;
  std::shared_ptr<RecordChunk> chunk;
  ~Writer() {
    const std::lock_guard lock(Records::get().state_->mutex);
    if (chunk != nullptr) chunk->open = false;
    gone = true;
  }
  static inline thread_local constinit bool gone = false;  ///< the thread ends: no more records
  static Writer& mine() {
    static thread_local Writer writer;
    return writer;
  }
};

Records::Records() : state_(std::make_unique<State>()) {}

Records& Records::get() {
  static auto* records = new Records();  // threads may still record while the process exits
  return *records;
}

uint32_t Records::start(size_t capacity, const std::function<void(uint32_t)>& before) {
  if (capacity == 0) throw Error(FL_INVALID_ARGUMENT, "a recording of calls needs room for at least 1");
  const std::lock_guard lock(state_->mutex);
  if (running() != 0) {
    throw Error(FL_INVALID_ARGUMENT, "calls are being recorded already; end that recording first");
  }
  state_->capacity = capacity;
  state_->result = Result();
  state_->result.capacity = capacity;
  state_->result.subjects.emplace_back();
  state_->result.start_ns = now_ns();
  ++state_->last;
  if (before) before(state_->last);
  running_.store(state_->last, std::memory_order_release);
  g_observers.fetch_or(kRecords, std::memory_order_relaxed);
  return state_->last;
}

void Records::add(const Record& record, uint32_t recording, uint32_t autograd_thread) noexcept {
  if (recording == 0 || Writer::gone) return;
  Writer& writer = Writer::mine();
  if (writer.recording != recording || writer.chunk->count.load(std::memory_order_relaxed) == RecordChunk::kSize) {
    try {
      if (!renew(writer, recording, autograd_thread)) return;
    } catch (const std::bad_alloc&) {
      return;
    }
  }
  RecordChunk& chunk = *writer.chunk;
  const uint32_t n = chunk.count.load(std::memory_order_relaxed);
  chunk.records[n] = record;
  chunk.count.store(n + 1, std::memory_order_release);
}

bool Records::renew(Writer& writer, uint32_t recording, uint32_t autograd_thread) {
  const std::lock_guard lock(state_->mutex);
  if (!runs(*this, recording)) return false;
  if (writer.chunk != nullptr) writer.chunk->open = false;
  std::shared_ptr<RecordChunk> chunk = state_->oldest();
  if (chunk == nullptr) chunk = std::shared_ptr<RecordChunk>(new RecordChunk);  // its records stay uninitialised
  chunk->count.store(0, std::memory_order_relaxed);
  chunk->thread = thread_number();
  if (pthread_getname_np(pthread_self(), chunk->thread_name, sizeof(chunk->thread_name)) != 0) {
    chunk->thread_name[0] = 0;
  }
  chunk->autograd_thread = autograd_thread;
  chunk->open = true;
  state_->chunks.push_back(chunk);
  writer.chunk = std::move(chunk);
  writer.recording = recording;
  return true;
}

size_t Records::room_for_subjects(size_t capacity) noexcept { return std::max<size_t>(1024, capacity / 8); }

uint32_t Records::intern(uint32_t recording, Subject subject) {
  const size_t hash = hash_of(subject);
  const std::lock_guard lock(state_->mutex);
  if (!runs(*this, recording)) return 0;
  if (const uint32_t number = state_->find(subject, hash)) return number;
  if (!state_->simplify(subject)) return state_->insert(std::move(subject), hash);
  const size_t simpler = hash_of(subject);
  if (const uint32_t number = state_->find(subject, simpler)) return number;
  return state_->insert(std::move(subject), simpler);
}

uint32_t Records::rerouted(uint32_t recording, uint32_t number, const std::string& route, const std::string& reason) {
  Subject subject;
  {
    const std::lock_guard lock(state_->mutex);
    if (!runs(*this, recording)) return 0;
    subject = state_->result.subjects[number];
  }
  subject.route = route;
  subject.reason = reason;
  subject.adapters.clear();
  return intern(recording, std::move(subject));
}

Records::Result Records::stop() {
  const std::lock_guard lock(state_->mutex);
  if (running() == 0) return {};
  g_observers.fetch_and(~static_cast<uint32_t>(kRecords), std::memory_order_relaxed);
  running_.store(0, std::memory_order_release);
  Result result = std::exchange(state_->result, {});
  result.end_ns = now_ns();
  for (auto& chunk : state_->chunks) {
    const uint32_t count = chunk->count.load(std::memory_order_acquire);
    if (count > 0) result.chunks.push_back({std::move(chunk), count});
  }
  state_->chunks.clear();
  state_->numbers.clear();
  return result;
}

}  // namespace torch_fl::runtime
