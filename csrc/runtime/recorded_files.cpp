// SPDX-License-Identifier: Apache-2.0
// A recording as JSON lines and as a Chrome trace, written as it is read: nothing is held but one buffer.
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "error.h"
#include "recorded.h"

namespace torch_fl::runtime {
namespace {

/// Length of the well-formed UTF-8 sequence at `at`; 0: there is none.
size_t sequence_length(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const unsigned char first = byte(0);
  const size_t length = first < 0x80 ? 1 : first >= 0xC2 && first < 0xE0 ? 2 : (first & 0xF0) == 0xE0 ? 3 : 4;
  if (length == 1) return 1;
  if (first < 0xC2 || first > 0xF4 || at + length > text.size()) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  const bool too_long = (first == 0xE0 && byte(1) < 0xA0) || (first == 0xF0 && byte(1) < 0x90);
  const bool no_character = (first == 0xED && byte(1) > 0x9F) || (first == 0xF4 && byte(1) > 0x8F);
  return too_long || no_character ? 0 : length;
}

/// JSON on its way into a file.
class Json {
 public:
  explicit Json(const std::string& path) : path_(path), file_(std::fopen(path.c_str(), "wb")) {
    if (file_ == nullptr) fail();
    buffer_.reserve(kBuffer + (1 << 16));
  }
  ~Json() {
    if (file_ != nullptr) std::fclose(file_);
  }
  Json(const Json&) = delete;

  void close() {
    write();
    const int failed = std::fclose(std::exchange(file_, nullptr));
    if (failed != 0) fail();
  }

  Json& raw(std::string_view text) {
    buffer_ += text;
    if (buffer_.size() >= kBuffer) write();
    return *this;
  }
  Json& string(std::string_view text) {
    buffer_ += '"';
    for (size_t i = 0; i < text.size();) i += character(text, i);
    buffer_ += '"';
    return *this;
  }
  template <typename Integer>
  Json& number(Integer value) {
    char digits[24];
    buffer_.append(digits, std::to_chars(digits, digits + sizeof(digits), value).ptr);
    return *this;
  }
  /// Nanoseconds as microseconds, exactly.
  Json& microseconds(int64_t ns) {
    if (ns < 0) {
      buffer_ += '-';
      ns = -ns;
    }
    number(ns / 1000);
    const auto rest = static_cast<unsigned>(ns % 1000);
    const char digits[] = {'.', static_cast<char>('0' + rest / 100), static_cast<char>('0' + rest / 10 % 10),
                           static_cast<char>('0' + rest % 10)};
    buffer_.append(digits, sizeof(digits));
    return *this;
  }

 private:
  static constexpr size_t kBuffer = 1 << 20;

  size_t character(std::string_view text, size_t at) {
    const auto c = static_cast<unsigned char>(text[at]);
    if (c == '"' || c == '\\') {
      buffer_ += '\\';
      buffer_ += static_cast<char>(c);
      return 1;
    }
    if (c < 0x20) {
      char escaped[8];
      std::snprintf(escaped, sizeof(escaped), "\\u%04x", c);
      buffer_ += escaped;
      return 1;
    }
    const size_t length = sequence_length(text, at);
    if (length == 0) {
      buffer_ += "\\ufffd";
      return 1;
    }
    buffer_.append(text.substr(at, length));
    return length;
  }

  void write() {
    const bool written = std::fwrite(buffer_.data(), 1, buffer_.size(), file_) == buffer_.size();
    buffer_.clear();
    if (!written) fail();
  }
  [[noreturn]] void fail() { throw Error(FL_INVALID_ARGUMENT, "cannot write " + path_ + ": " + std::strerror(errno)); }

  std::string path_;
  std::FILE* file_;
  std::string buffer_;
};

int64_t whole(float ns) { return static_cast<int64_t>(std::llround(ns)); }

void strings(Json& json, const std::vector<std::string>& items) {
  json.raw("[");
  for (size_t i = 0; i < items.size(); ++i) json.raw(i > 0 ? "," : "").string(items[i]);
  json.raw("]");
}

void shapes(Json& json, const std::vector<std::vector<int64_t>>& items) {
  json.raw("[");
  for (size_t i = 0; i < items.size(); ++i) {
    json.raw(i > 0 ? ",[" : "[");
    for (size_t k = 0; k < items[i].size(); ++k) json.raw(k > 0 ? "," : "").number(items[i][k]);
    json.raw("]");
  }
  json.raw("]");
}

void header(Json& json, const Recorded& recorded) {
  json.raw(R"({"type":"header","version":1,"records":)").number(recorded.size());
  json.raw(R"(,"dropped":)").number(recorded.dropped());
  json.raw(R"(,"events":)").number(recorded.events().size());
  json.raw(R"(,"dropped_events":)").number(recorded.dropped_events());
  json.raw(R"(,"start_ns":)").number(recorded.start_ns());
  json.raw(R"(,"end_ns":)").number(recorded.end_ns());
  json.raw(R"(,"notes":)");
  strings(json, recorded.notes());
  json.raw("}\n");
}

/// The fields of one line. What is 0, false or empty is left out: that is half of a file.
class Line {
 public:
  Line(Json& json, const char* type) : json_(json) { json_.raw(R"({"type":")").raw(type).raw("\""); }
  Line(const Line&) = delete;
  void end() { json_.raw("}\n"); }  // not the destructor: writing may throw

  template <typename Integer>
  void number(const char* name, Integer value) {
    if (value != 0) field(name).number(value);
  }
  void flag(const char* name, bool value) {
    if (value) field(name).raw("true");
  }
  void text(const char* name, std::string_view value) {
    if (!value.empty()) field(name).string(value);
  }
  void list(const char* name, const std::vector<std::string>& values) {
    if (!values.empty()) strings(field(name), values);
  }
  void list(const char* name, const std::vector<std::vector<int64_t>>& values) {
    if (!values.empty()) shapes(field(name), values);
  }
  Json& field(const char* name) { return json_.raw(",\"").raw(name).raw("\":"); }

 private:
  Json& json_;
};

void record_line(Json& json, const Recorded& recorded, size_t i) {
  const Record& r = recorded[i];
  const Subject& s = recorded.subject(r);
  Line line(json, "record");
  line.number("id", r.id);
  line.number("parent", r.parent == 0 ? 0 : r.id - r.parent);
  line.text("op", s.op);
  line.text("overload", s.overload);
  line.text("chip", s.chip);
  line.number("device", s.device);
  line.number("stream", r.stream);
  line.text("route", s.route);
  line.text("reason", s.reason);
  line.list("adapters", s.adapters);
  line.number("conversions", r.conversions);
  line.list("shapes", s.shapes);
  line.list("dtypes", s.dtypes);
  line.number("bytes", r.bytes);
  line.number("syncs", r.syncs);
  line.number("start_ns", r.start_ns);
  line.number("host_ns", r.host_ns);
  line.number("self_host_ns", recorded.self_host_ns(i));
  line.number("wait_ns", whole(r.wait_ns));
  line.number("copy_in_ns", whole(r.copy_in_ns));
  line.number("compute_ns", whole(r.compute_ns));
  line.number("copy_out_ns", whole(r.copy_out_ns));
  line.number("device_ns", whole(r.device_ns));
  line.number("allocated_bytes", r.allocated_bytes);
  line.flag("failed", (r.flags & Record::kFailed) != 0);
  line.flag("backward", (r.flags & Record::kBackward) != 0);
  line.number("thread", recorded.thread(i));
  line.field("sequence").number(r.sequence);
  line.text("site", recorded.site(r.site));
  line.text("layer", recorded.layer(r.layer));
  line.end();
}

void event_line(Json& json, const SmallEvent& e) {
  Line line(json, "event");
  line.text("kind", kind_name(e.kind));
  line.text("name", e.name);
  line.number("device", e.device);
  line.number("stream", e.stream);
  line.number("correlation", e.correlation);
  line.number("thread", e.thread);
  line.number("start_ns", e.start_ns);
  line.number("end_ns", e.end_ns);
  line.number("bytes", e.bytes);
  line.end();
}

// ---- Chrome trace -----------------------------------------------------------------------------------------------
constexpr int64_t kDevicePid =
    1'000'000'000;  // beyond every process: devices stand beside it as processes of their own
int64_t pid_of(int32_t device) { return kDevicePid + device; }

class Trace {
 public:
  Trace(Json& json, const Recorded& recorded) : json_(json), recorded_(recorded), pid_(::getpid()) {}

  void write() {
    json_.raw(R"({"displayTimeUnit":"ms","traceEvents":[)");
    for (size_t i = 0; i < recorded_.size(); ++i) call(i);
    for (const SmallEvent& event : recorded_.events()) device_event(event);
    for (const MemorySample& sample : recorded_.memory(kMemoryPoints)) memory(sample);
    names();
    json_.raw("]}\n");
  }

 private:
  static constexpr size_t kMemoryPoints = 5000;

  Json& begin(const char* phase, int64_t pid, int64_t tid, int64_t ns) {
    json_.raw(first_ ? "\n" : ",\n").raw(R"({"ph":")").raw(phase).raw(R"(","pid":)").number(pid);
    first_ = false;
    return json_.raw(R"(,"tid":)").number(tid).raw(R"(,"ts":)").microseconds(ns);
  }

  void call(size_t i) {
    const Record& r = recorded_[i];
    const Subject& s = recorded_.subject(r);
    if (recorded_.thread(i) != last_thread_) {
      last_thread_ = recorded_.thread(i);
      threads_.emplace(last_thread_, recorded_.thread_name(i));
    }
    begin("X", pid_, static_cast<int64_t>(recorded_.thread(i)), r.start_ns).raw(R"(,"dur":)").microseconds(r.host_ns);
    json_.raw(R"(,"cat":)").string(s.route).raw(R"(,"name":)");
    json_.string(s.overload.empty() ? s.op : s.op + "." + s.overload);
    json_.raw(R"(,"args":{"id":)").number(r.id).raw(R"(,"device":)").number(s.device);
    json_.raw(R"(,"shapes":)");
    shapes(json_, s.shapes);
    if (!s.reason.empty()) json_.raw(R"(,"reason":)").string(s.reason);
    if (r.bytes != 0) json_.raw(R"(,"bytes":)").number(r.bytes);
    if (r.site != 0) json_.raw(R"(,"site":)").string(recorded_.site(r.site));
    if (r.layer != 0) json_.raw(R"(,"layer":)").string(recorded_.layer(r.layer));
    if (r.wait_ns > 0) json_.raw(R"(,"wait_us":)").microseconds(whole(r.wait_ns));
    if (r.compute_ns > 0) json_.raw(R"(,"compute_us":)").microseconds(whole(r.compute_ns));
    if ((r.flags & Record::kBackward) != 0) json_.raw(R"(,"backward":true)");
    if ((r.flags & Record::kFailed) != 0) json_.raw(R"(,"failed":true)");
    json_.raw("}}");
    if (r.device_ns > 0) flow("s", r.id, pid_, static_cast<int64_t>(recorded_.thread(i)), r.start_ns);
  }

  void device_event(const SmallEvent& e) {
    const bool on_device = (bit_of(e.kind) & kDeviceWork) != 0;
    const int64_t pid = on_device ? pid_of(e.device) : pid_, tid = on_device ? e.stream : e.thread;
    if (on_device) streams_[e.device].insert(e.stream);
    begin("X", pid, tid, e.start_ns).raw(R"(,"dur":)").microseconds(e.end_ns - e.start_ns);
    json_.raw(R"(,"cat":)").string(kind_name(e.kind)).raw(R"(,"name":)").string(e.name);
    json_.raw(R"(,"args":{"correlation":)").number(e.correlation);
    if (e.bytes != 0) json_.raw(R"(,"bytes":)").number(e.bytes);
    json_.raw("}}");
    if (on_device && e.correlation != 0) flow("f", e.correlation, pid, tid, e.start_ns);
  }

  void flow(const char* phase, uint64_t id, int64_t pid, int64_t tid, int64_t ns) {
    begin(phase, pid, tid, ns).raw(R"(,"cat":"launch","name":"launch","id":)").number(id);
    json_.raw(phase[0] == 'f' ? R"(,"bp":"e"})" : "}");
  }

  void memory(const MemorySample& sample) {
    begin("C", pid_of(sample.device), 0, sample.time_ns).raw(R"(,"name":"allocated memory","args":{"bytes":)");
    json_.number(sample.allocated_bytes).raw("}}");
    streams_[sample.device];
  }

  void name(const char* what, int64_t pid, int64_t tid, std::string_view value) {
    begin("M", pid, tid, 0).raw(R"(,"name":")").raw(what).raw(R"(","args":{"name":)").string(value).raw("}}");
  }

  void names() {
    name("process_name", pid_, 0, "host");
    for (const auto& [thread, given] : threads_) name("thread_name", pid_, static_cast<int64_t>(thread), given);
    for (const auto& [device, streams] : streams_) {
      name("process_name", pid_of(device), 0, "fl:" + std::to_string(device));
      for (const int32_t stream : streams) {
        name("thread_name", pid_of(device), stream,
             stream == 0 ? "default stream" : "stream " + std::to_string(stream));
      }
    }
  }

  Json& json_;
  const Recorded& recorded_;
  const int64_t pid_;
  bool first_ = true;
  uint64_t last_thread_ = 0;
  std::map<uint64_t, std::string> threads_;
  std::map<int32_t, std::set<int32_t>> streams_;
};

}  // namespace

void Recorded::write_json_lines(const std::string& path) const {
  Json json(path);
  header(json, *this);
  for (size_t i = 0; i < size(); ++i) record_line(json, *this, i);
  for (const SmallEvent& event : events()) event_line(json, event);
  json.close();
}

void Recorded::write_chrome_trace(const std::string& path) const {
  Json json(path);
  Trace(json, *this).write();
  json.close();
}

}  // namespace torch_fl::runtime
