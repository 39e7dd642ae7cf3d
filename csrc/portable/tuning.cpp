// SPDX-License-Identifier: Apache-2.0
#include "tuning.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "runtime/internal.h"
#include "runtime/settings.h"
#include "text.h"

namespace torch_fl::portable {
namespace {

constexpr double kEnough = 1 << 27;  ///< multiplications from which on a measurement pays
constexpr int64_t kDepth = 512, kStrips = 8, kPanels = 8;
constexpr int64_t kMeasured = 40'000'000;  ///< multiplications of one run, about
constexpr int kRuns = 7;                   ///< after one that warms up

bool switched_off() {
  if (runtime::settings.full_precision.load(std::memory_order_relaxed)) return true;  // sums in one order, everywhere
  const char* text = std::getenv("TORCH_FL_TUNE");
  return text != nullptr && std::strcmp(text, "0") == 0;
}

std::string key_of(const runtime::Device& device, fl_dtype dtype) {
  const fl_device_properties& p = device.properties;
  return "torch-fl tuning 1; " + device.chip.name + "; " + p.name + "; " + p.driver_version + "; " + type_name(dtype) +
         "; " + std::to_string(std::hash<std::string>()(std::string(text_of("tile.h")) + text_of("tuning.h")));
}

std::filesystem::path path_of(const std::string& key) {
  const std::string modules = runtime::module_folder();
  if (modules.empty()) return {};
  std::array<char, 20> name{};
  std::snprintf(name.data(), name.size(), "%016zx", std::hash<std::string>()(key));
  return std::filesystem::path(modules).parent_path() / "tuning" / name.data();
}

std::string describe(const Tile& tile) {
  return std::to_string(tile.rows) + "x" + std::to_string(tile.vectors) + "x" + std::to_string(tile.width);
}

// Key, items per unit, then "rows vectors width share" for each tile.
bool read(const std::filesystem::path& path, const std::string& key, std::vector<TileShare>& shares, int64_t& items) {
  std::ifstream stream(path);
  std::string line;
  if (!std::getline(stream, line) || line != key || !(stream >> items) || items < 1 || items > 64) return false;
  TileShare share{};
  while (stream >> share.tile.rows >> share.tile.vectors >> share.tile.width >> share.share) {
    const Tile& t = share.tile;
    const bool sane = t.rows >= 1 && t.rows <= 16 && t.vectors >= 1 && t.vectors <= 8 && share.share > 0;
    if (!sane || (t.width != 4 && t.width != 8 && t.width != 16)) return false;
    shares.push_back(share);
  }
  return stream.eof() && !shares.empty();
}

void write(const std::filesystem::path& path, const std::string& key, const std::vector<TileShare>& shares,
           int64_t items) {
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  const std::filesystem::path temporary = path.string() + "." + std::to_string(getpid());
  std::ofstream stream(temporary);
  stream << key << "\n" << items << "\n";
  for (const TileShare& s : shares) {
    stream << s.tile.rows << " " << s.tile.vectors << " " << s.tile.width << " " << s.share << "\n";
  }
  stream.close();
  if (stream.good()) std::filesystem::rename(temporary, path, error);
  if (!stream.good() || error) {
    runtime::log(FL_LOG_INFO, "what tuning found could not be kept as " + path.string());
    std::filesystem::remove(temporary, error);
  }
}

}  // namespace

Tuner::Choice Tuner::choose(const fl_call& call, fl_dtype dtype, int64_t rows, double multiplications) {
  const fl_dtype sums = dtype == FL_FLOAT64 ? FL_FLOAT64 : FL_FLOAT32;
  const auto none = [&] { return Choice{best_tile(tile_shares(dtype), rows), kItemsPerUnit}; };
  if (!is_floating(dtype) || switched_off()) return none();
  const std::lock_guard lock(mutex_);
  auto found = known_.find({call.device_index, sums});
  if (found == known_.end()) {
    if (multiplications < kEnough) return none();
    found = known_.emplace(std::pair(call.device_index, sums), find_out(call, sums)).first;
  }
  return {best_tile(found->second.shares, rows), found->second.items_per_unit};
}

Tuner::Known Tuner::find_out(const fl_call& call, fl_dtype dtype) {
  const std::string key = key_of(device(call), dtype);
  const std::filesystem::path path = path_of(key);
  Known known;
  if (!path.empty() && read(path, key, known.shares, known.items_per_unit)) return known;
  try {
    known = measure(call, dtype);
  } catch (const std::exception& error) {
    runtime::log(FL_LOG_INFO, std::string("tuning failed: ") + error.what());
    return {tile_shares(dtype), kItemsPerUnit};
  }
  if (!path.empty()) write(path, key, known.shares, known.items_per_unit);
  return known;
}

/// Tells what keeps the caller waiting, as soon as that takes a while and then every other second.
class Tuner::Progress {
 public:
  explicit Progress(std::string what) : what_(std::move(what)) {}
  void step(const std::string& doing) {
    const Clock::time_point now = Clock::now();
    if (now < next_) return;
    next_ = now + std::chrono::seconds(2);
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now - start_).count();
    runtime::log(FL_LOG_WARNING, "tuning " + what_ + ": " + doing + " (since " + std::to_string(seconds) +
                                     " s; done once for a device and remembered; TORCH_FL_TUNE=0 goes without)");
  }

 private:
  using Clock = std::chrono::steady_clock;
  std::string what_;
  Clock::time_point start_ = Clock::now(), next_ = start_ + std::chrono::seconds(1);
};

Tuner::Known Tuner::measure(const fl_call& call, fl_dtype dtype) {
  const std::vector<TileShare> all = tile_shares(dtype, true);
  const std::string name = std::string(type_name(dtype)) + " on " + device(call).properties.name;
  Progress progress(name);
  const auto of_width = [&](int width) {
    std::vector<Trial> trials;
    for (const TileShare& candidate : all) {
      if (candidate.tile.width == width) trials.push_back(prepare(call, dtype, candidate.tile, progress));
    }
    return trials;
  };
  runtime::log(FL_LOG_INFO, "tuning " + name + ": compiling");
  std::vector<Trial> trials = of_width(all.front().tile.width);
  const auto narrow =
      std::find_if(all.begin(), all.end(), [&](const TileShare& s) { return s.tile.width != all.front().tile.width; });
  trials.push_back(prepare(call, dtype, narrow->tile, progress));
  runtime::log(FL_LOG_INFO, "tuning " + name + ": measuring");
  race(call, dtype, trials, progress);
  const auto slower = [](const Trial& a, const Trial& b) { return a.speed < b.speed; };
  const bool wide = std::max_element(trials.begin(), trials.end(), slower) != trials.end() - 1;
  trials.pop_back();
  if (!wide) race(call, dtype, trials = of_width(narrow->tile.width), progress);
  const Trial top = *std::max_element(trials.begin(), trials.end(), slower);
  Known known;
  for (const Trial& trial : trials) {
    known.shares.push_back({trial.tile, trial.speed / top.speed});
    runtime::log(FL_LOG_INFO, "tuning " + name + ": tile " + describe(trial.tile) + ", " +
                                  std::to_string(std::lround(2 * trial.speed)) + " GFLOP/s");
  }
  // More items balance better, fewer start sooner. A difference within the noise leaves it as it is.
  std::vector<Trial> counts(4, top);
  for (size_t i = 0; i < counts.size(); ++i) counts[i].items_per_unit = kItemsPerUnit << i >> 2;
  race(call, dtype, counts, progress);
  const Trial most = *std::max_element(counts.begin(), counts.end(), slower);
  if (most.speed > 1.05 * counts[2].speed) known.items_per_unit = most.items_per_unit;
  runtime::log(FL_LOG_INFO, "tuning " + name + ": " + std::to_string(known.items_per_unit) + " work items per unit");
  return known;
}

Tuner::Trial Tuner::prepare(const fl_call& call, fl_dtype dtype, const Tile& tile, Progress& progress) {
  progress.step("compiling tile " + describe(tile));
  VariantKey key;
  key.add(static_cast<uint32_t>(dtype));
  add_tile(key, tile);
  const fl_module module = variant(call, key, [&] {
    Source source;
    const std::string a = arithmetic_name(dtype);
    source.head = tile_head(dtype, tile);
    source.members = "  i64 k, strips, panels, total, chunk";
    source.pointers = {{a, "out", true}, {a, "strips"}, {a, "panels"}};
    source.functions = text_of("tuning.h");
    source.body = "  tiles_measured(out, strips, panels, p, item);\n";
    return source;
  });
  return {tile, kItemsPerUnit, module, 0};
}

// In turns, so that what else the machine does meanwhile meets all of them.
void Tuner::race(const fl_call& call, fl_dtype dtype, std::vector<Trial>& trials, Progress& progress) {
  runtime::Device& on = device(call);
  const int64_t element = dtype == FL_FLOAT64 ? 8 : 4;
  const auto tiles = [](const Tile& tile) {
    return std::max<int64_t>(64, kMeasured / (tile.rows * tile.columns() * kDepth));
  };
  int64_t sizes[3] = {0, 0, 0};
  for (const Trial& trial : trials) {
    const Tile& t = trial.tile;
    sizes[0] = std::max(sizes[0], tiles(t) * t.rows * t.columns());
    sizes[1] = std::max(sizes[1], kStrips * kDepth * t.rows);
    sizes[2] = std::max(sizes[2], kPanels * kDepth * t.columns());
  }
  std::array<fl_address, 3> memory{};
  for (size_t i = 0; i < 3; ++i) {
    const auto bytes = static_cast<uint64_t>(sizes[i] * element);
    on.check(runtime::host_services().scratch(&call, bytes, &memory[i]), "asking for memory to tune with");
    if (i == 0) continue;
    const std::vector<char> zeros(bytes, '\0');  // what lies there could be slow to compute with
    on.check(on.chip.memory.copy(call.device, call.stream, memory[i], reinterpret_cast<fl_address>(zeros.data()), bytes,
                                 FL_COPY_HOST_TO_DEVICE),
             "copying what to tune with");
    wait(call);
  }
  for (int run = 0; run <= kRuns; ++run) {
    for (Trial& trial : trials) {
      progress.step("measuring tile " + describe(trial.tile));
      const int64_t total = tiles(trial.tile);
      const Split work = split(on, total, 1, trial.items_per_unit);
      Members<5> words;
      for (const int64_t word : {kDepth, kStrips, kPanels, total, work.chunk}) words.add(word);
      Arguments arguments;
      for (const fl_address address : memory) arguments.add_address(address);
      arguments.add_members(words.data(), words.bytes());
      const auto start = std::chrono::steady_clock::now();
      on.check(arguments.launch(call, on, trial.module, work.items), "launching a tuning run");
      wait(call);
      const std::chrono::duration<double, std::nano> taken = std::chrono::steady_clock::now() - start;
      const double done = static_cast<double>(total * trial.tile.rows * trial.tile.columns() * kDepth);
      if (run > 0) trial.speed = std::max(trial.speed, done / taken.count());
    }
  }
}

void Tuner::wait(const fl_call& call) {
  runtime::Device& on = device(call);
  if (!on.chip.has_streams) return;  // then every function waits
  on.check(on.chip.stream.synchronize(call.device, call.stream), "waiting for a tuning run");
}

Tuner& tuner_of(runtime::Chip& chip, Language language) {
  static std::mutex mutex;
  static auto* tuners = new std::map<runtime::Chip*, Tuner*>();
  const std::lock_guard lock(mutex);
  auto [at, fresh] = tuners->try_emplace(&chip, nullptr);
  if (fresh) at->second = keep<Tuner>(chip, language);
  return *at->second;
}

}  // namespace torch_fl::portable
