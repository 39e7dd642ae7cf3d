// SPDX-License-Identifier: Apache-2.0
#include "recorded.h"

#include <algorithm>
#include <map>
#include <unordered_map>

namespace torch_fl::runtime {

SmallEvent small(const DeviceEvent& event) {
  return {event.start_ns,
          event.end_ns,
          event.correlation,
          event.bytes,
          event.op != nullptr && (event.name == nullptr || event.name[0] == 0) ? event.op : event.name,
          static_cast<uint32_t>(event.thread),
          static_cast<int16_t>(event.stream),
          static_cast<int8_t>(event.device),
          event.kind};
}

const char* kind_name(EventKind kind) {
  switch (kind) {
    case EventKind::kKernel:
      return "kernel";
    case EventKind::kCopy:
      return "copy";
    case EventKind::kFill:
      return "fill";
    case EventKind::kRuntime:
      return "runtime";
    case EventKind::kLaunch:
      return "launch";
  }
  return "?";
}

Recorded::Recorded(Records::Result result, Context context) : result_(std::move(result)), context_(std::move(context)) {
  if (result_.subjects.empty()) result_.subjects.emplace_back();
  if (result_.simplified) {
    context_.notes.push_back(
        "calls of more than " + std::to_string(Records::room_for_subjects(result_.capacity)) +
        " kinds (operator, route, shapes, dtypes): shapes, dtypes and adapters of later kinds are not kept; " +
        "a larger capacity has room for more");
  }
  sort();
  merge_sites();
  subtract_inner_calls();
  add_device_times();
  follow_backward();
}

void Recorded::sort() {
  std::vector<std::pair<uint64_t, uint32_t>> all;
  size_t count = 0;
  for (const auto& chunk : result_.chunks) count += chunk.count;
  all.reserve(count);
  for (uint32_t c = 0; c < result_.chunks.size(); ++c) {
    for (uint32_t n = 0; n < result_.chunks[c].count; ++n) {
      all.emplace_back(result_.chunks[c].chunk->records[n].id, c * RecordChunk::kSize + n);
    }
  }
  std::sort(all.begin(), all.end());
  const size_t extra = count > result_.capacity ? count - result_.capacity : 0;
  result_.dropped += extra;
  order_.reserve(count - extra);
  for (size_t i = extra; i < count; ++i) order_.push_back(all[i].second);
}

// Several instructions of one line.
void Recorded::merge_sites() {
  std::unordered_map<std::string, uint32_t> first;
  std::vector<uint32_t> number;
  for (uint32_t i = 0; i < context_.sites.size(); ++i)
    number.push_back(first.emplace(context_.sites[i], i).first->second);
  for (size_t i = 0; i < size(); ++i) {
    uint32_t& site = at(i).site;
    site = site < number.size() ? number[site] : 0;
  }
}

size_t Recorded::find(uint64_t id) const {
  const auto found = std::lower_bound(order_.begin(), order_.end(), id, [&](uint32_t place, uint64_t wanted) {
    return result_.chunks[place / RecordChunk::kSize].chunk->records[place % RecordChunk::kSize].id < wanted;
  });
  const auto i = static_cast<size_t>(found - order_.begin());
  return found != order_.end() && (*this)[i].id == id ? i : kNowhere;
}

void Recorded::subtract_inner_calls() {
  self_.resize(size());
  for (size_t i = 0; i < size(); ++i) self_[i] = (*this)[i].host_ns;
  for (size_t i = 0; i < size(); ++i) {
    const Record& record = (*this)[i];
    if (record.parent == 0) continue;
    const size_t around = find(record.id - record.parent);
    if (around != kNowhere) self_[around] -= record.host_ns;
  }
}

void Recorded::add_device_times() {
  std::sort(context_.events.begin(), context_.events.end(),
            [](const SmallEvent& a, const SmallEvent& b) { return a.start_ns < b.start_ns; });
  for (const SmallEvent& event : context_.events) {
    if (event.correlation == 0 || (bit_of(event.kind) & kDeviceWork) == 0) continue;
    const size_t i = find(event.correlation);
    if (i != kNowhere) at(i).device_ns += static_cast<float>(event.end_ns - event.start_ns);
  }
}

// A call of the backward pass takes site and layer from the forward call: the first that was made after autograd had
// numbered its node. A view's node has no record of its own; the next call of the thread stands for it.
void Recorded::follow_backward() {
  using Key = std::pair<uint32_t, int64_t>;
  constexpr int64_t kNear = 8;
  std::vector<std::pair<Key, uint32_t>> forward;
  bool any = false;
  for (size_t i = 0; i < size(); ++i) {
    const Record& record = (*this)[i];
    const bool backward = (record.flags & Record::kBackward) != 0;
    any |= backward;
    if (!backward && record.sequence >= 0) {
      forward.push_back({{chunk_of(i).autograd_thread, record.sequence}, static_cast<uint32_t>(i)});
    }
  }
  if (!any) return;
  std::sort(forward.begin(), forward.end());
  for (size_t i = 0; i < size(); ++i) {
    Record& record = at(i);
    if ((record.flags & Record::kBackward) == 0 || record.sequence < 0) continue;
    const Key key{record.forward_thread, record.sequence};
    const auto found = std::lower_bound(forward.begin(), forward.end(), std::pair<Key, uint32_t>{key, 0});
    if (found == forward.end() || found->first.first != key.first || found->first.second - key.second > kNear) continue;
    // Whether the first call that is known of a thread made the node, or came later, is known of one thread alone.
    const bool first = found == forward.begin() || std::prev(found)->first.first != key.first;
    if (first && (key.first != context_.start_thread || key.second < context_.start_sequence)) continue;
    const Record& origin = (*this)[found->second];
    if (record.site == 0) record.site = origin.site;
    if (record.layer == 0) record.layer = origin.layer;
  }
}

// ---- Sums -------------------------------------------------------------------------------------------------------
namespace {

void append(std::string& key, const std::string& text) {
  key += text;
  key += '\0';
}

std::string key_of(const Subject& subject, uint32_t by) {
  std::string key;
  if ((by & kByOp) != 0) append(key, subject.op);
  if ((by & kByOverload) != 0) append(key, subject.overload);
  if ((by & kByChip) != 0) append(key, subject.chip);
  if ((by & kByDevice) != 0) append(key, std::to_string(subject.device));
  if ((by & kByRoute) != 0) append(key, subject.route);
  if ((by & kByReason) != 0) append(key, subject.reason);
  if ((by & kByShapes) == 0) return key;
  for (const auto& shape : subject.shapes) {
    for (const int64_t size : shape) append(key, std::to_string(size));
    append(key, ";");
  }
  return key;
}

void add(CallGroup& group, const Record& record, int64_t self_host_ns) {
  ++group.calls;
  group.failed += (record.flags & Record::kFailed) != 0;
  group.bytes += record.bytes;
  group.syncs += record.syncs;
  group.conversions += record.conversions;
  group.host_ns += record.host_ns;
  group.self_host_ns += self_host_ns;
  group.wait_ns += static_cast<double>(record.wait_ns);
  group.copy_ns += static_cast<double>(record.copy_in_ns) + static_cast<double>(record.copy_out_ns);
  group.compute_ns += static_cast<double>(record.compute_ns);
  group.device_ns += static_cast<double>(record.device_ns);
}

struct GroupKey {
  uint32_t shared, site, layer;
  bool backward;
  bool operator==(const GroupKey&) const = default;
};
struct HashOfGroupKey {
  size_t operator()(const GroupKey& key) const {
    size_t hash = key.shared;
    for (const size_t part : {size_t{key.site}, size_t{key.layer}, size_t{key.backward}}) {
      hash = (hash ^ part) * 0x9E3779B97F4A7C15ull;
      hash ^= hash >> 32;
    }
    return hash;
  }
};

}  // namespace

std::vector<CallGroup> Recorded::groups(uint32_t by) const {
  // Subjects that are alike in what is asked for have one number.
  std::unordered_map<std::string, uint32_t> shared;
  std::vector<uint32_t> shared_of;
  for (const Subject& subject : result_.subjects) {
    shared_of.push_back(shared.emplace(key_of(subject, by), static_cast<uint32_t>(shared.size())).first->second);
  }
  std::unordered_map<GroupKey, size_t, HashOfGroupKey> places;
  std::vector<CallGroup> groups;
  for (size_t i = 0; i < size(); ++i) {
    const Record& record = (*this)[i];
    const GroupKey key{shared_of[record.subject], (by & kBySite) != 0 ? record.site : 0,
                       (by & kByLayer) != 0 ? record.layer : 0,
                       (by & kByBackward) != 0 && (record.flags & Record::kBackward) != 0};
    const auto [place, fresh] = places.emplace(key, groups.size());
    if (fresh) groups.push_back({&subject(record), key.site, key.layer, key.backward});
    add(groups[place->second], record, self_[i]);
  }
  return groups;
}

std::vector<MemorySample> Recorded::memory(size_t points) const {
  std::map<int32_t, std::vector<MemorySample>> devices;
  for (size_t i = 0; i < size(); ++i) {
    const Record& record = (*this)[i];
    const int32_t device = subject(record).device;
    devices[device].push_back({record.start_ns + record.host_ns, device, record.allocated_bytes});
  }
  const auto by_time = [](const MemorySample& a, const MemorySample& b) { return a.time_ns < b.time_ns; };
  std::vector<MemorySample> kept;
  for (auto& [device, samples] : devices) {
    std::sort(samples.begin(), samples.end(), by_time);
    const size_t stretch = points == 0 ? 1 : (samples.size() + points - 1) / points;
    for (size_t first = 0; first < samples.size(); first += stretch) {
      const auto begin = samples.begin() + static_cast<std::ptrdiff_t>(first);
      const auto end = samples.begin() + static_cast<std::ptrdiff_t>(std::min(first + stretch, samples.size()));
      kept.push_back(*std::max_element(begin, end, [](const MemorySample& a, const MemorySample& b) {
        return a.allocated_bytes < b.allocated_bytes;
      }));
    }
  }
  std::sort(kept.begin(), kept.end(), by_time);
  return kept;
}

}  // namespace torch_fl::runtime
