// SPDX-License-Identifier: Apache-2.0
#include "compiler.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

extern char** environ;

namespace simchip {
namespace {

constexpr size_t kMaxMessages = 4000;  // with the end of a line to spare in the 4 KiB of an error's text

// The arithmetic is that of the chip's own kernels: multiply and add do not fuse.
constexpr const char* kFlags[] = {"-std=gnu99",        "-O3",
                                  "-march=native",     "-fPIC",
                                  "-shared",           "-fno-math-errno",
                                  "-fwrapv",           "-fno-trapping-math",
                                  "-ffp-contract=off", "-fvisibility=default",
                                  "-Wl,-z,defs"};

struct Compiler {
  std::vector<std::string> command;  // "" first where none was found
  std::string sought;
};

std::vector<std::string> words(const char* text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

bool is_program(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && access(path.c_str(), X_OK) == 0;
}

std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return is_program(name) ? name : "";
  const char* path = std::getenv("PATH");
  std::istringstream folders(path ? path : "/usr/local/bin:/usr/bin:/bin");
  for (std::string folder; std::getline(folders, folder, ':');)
    if (std::string candidate = (folder.empty() ? "." : folder) + "/" + name; is_program(candidate)) return candidate;
  return "";
}

Compiler find_compiler() {
  for (const char* variable : {"SIMCHIP_CC", "CC"}) {
    const char* text = std::getenv(variable);
    std::vector<std::string> command = words(text ? text : "");
    if (command.empty()) continue;
    const std::string sought = command[0] + " (" + variable + ")";
    command[0] = find_program(command[0]);
    return {std::move(command), sought};
  }
  for (const char* name : {"cc", "gcc", "clang"})
    if (std::string path = find_program(name); !path.empty()) return {{path}, name};
  return {{""}, "cc, gcc and clang on the PATH"};
}

const Compiler& compiler() {
  static const Compiler* const found = new Compiler(find_compiler());
  return *found;
}

simResult need_compiler() {
  const Compiler& c = compiler();
  if (!c.command[0].empty()) return SIM_SUCCESS;
  return fail(SIM_ERROR_NO_COMPILER, "there is no C compiler; looked for %s; SIMCHIP_CC may name one",
              c.sought.c_str());
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

// What is preloaded into this process (a sanitizer, a profiler) has no business in the compiler.
std::vector<std::string> child_environment(const std::string& folder) {
  std::vector<std::string> result = {"LC_ALL=C", "TMPDIR=" + folder};
  for (char** each = environ; *each; ++each) {
    const std::string_view text = *each;
    if (!text.starts_with("LC_ALL=") && !text.starts_with("TMPDIR=") && !text.starts_with("LD_PRELOAD="))
      result.emplace_back(text);
  }
  return result;
}

struct Outcome {
  bool ran = false;  // to its end
  int code = 0;
  std::string problem;
};

Outcome wait_for(pid_t child) {
  int status = 0;
  pid_t done;
  do done = waitpid(child, &status, 0);
  while (done < 0 && errno == EINTR);
  if (done < 0) return {true, 0, ""};  // a process that ignores SIGCHLD: the files tell how it went
  if (WIFEXITED(status)) return {true, WEXITSTATUS(status), ""};
  return {false, 0, "signal " + std::to_string(WTERMSIG(status)) + " ended it"};
}

// posix_spawn(), because other threads of this process may hold any lock. Messages go to a file, not to a pipe: a child
// that another thread forks meanwhile would keep a pipe open.
Outcome run(std::vector<std::string> command, const std::string& input, const std::string& output,
            const std::string& folder) {
  std::vector<std::string> environment = child_environment(folder);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 0, input.c_str(), O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, 1, output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&files, 1, 2);
  pid_t child = 0;
  const int error =
      posix_spawn(&child, command[0].c_str(), &files, nullptr, pointers(command).data(), pointers(environment).data());
  posix_spawn_file_actions_destroy(&files);
  return error ? Outcome{false, 0, std::strerror(error)} : wait_for(child);
}

std::string compiler_version() {
  TemporaryFolder folder;
  std::vector<std::string> command = compiler().command;
  command.push_back("--version");
  const std::string output = folder.file("version");
  if (!folder.exists() || !run(std::move(command), "/dev/null", output, folder.path()).ran) return "unknown compiler";
  const std::string text = read_file(output, kMaxMessages);
  return text.substr(0, text.find('\n'));
}

uint64_t command_hash() {
  uint64_t result = hash("");
  for (const std::string& word : compiler().command) result = hash(word, result);
  for (const char* flag : kFlags) result = hash(flag, result);
  return result;
}

std::string messages_in(const std::string& path) {
  std::string text = read_file(path, kMaxMessages);
  if (text.size() == kMaxMessages) text.resize(std::min(text.rfind('\n'), text.size() - 1) + 1);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

Cpu read_cpu() {
  Cpu result{"", hash("")};
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line) && !line.empty();) {  // the first processor's paragraph
    const size_t colon = line.find(':');
    const size_t end = line.find_last_not_of("\t ", colon == std::string::npos ? colon : colon - 1);
    const std::string key = line.substr(0, end + 1);
    const std::string value = colon + 2 < line.size() ? line.substr(colon + 2) : "";
    if (key == "model name" || key == "CPU part") result.name = value;
    for (const char* known : {"model name", "flags", "Features", "CPU implementer", "CPU part"})
      if (key == known) result.features = hash(line, result.features);
  }
  utsname system{};
  if (result.name.empty() && uname(&system) == 0) result.name = system.machine;
  return result;
}

}  // namespace

TemporaryFolder::TemporaryFolder() {
  const char* parent = std::getenv("TMPDIR");
  path_ = std::string(parent && *parent ? parent : "/tmp") + "/simchip-XXXXXX";
  exists_ = mkdtemp(path_.data()) != nullptr;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  if (exists_) std::filesystem::remove_all(path_, ignored);
}

bool write_file(const std::string& path, std::string_view bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  return file.good();
}

std::string read_file(const std::string& path, size_t limit) {
  std::error_code error;
  const uintmax_t size = std::filesystem::file_size(path, error);
  std::string bytes(error ? 0 : static_cast<size_t>(std::min<uintmax_t>(size, limit)), '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  bytes.resize(static_cast<size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  return bytes;
}

uint64_t hash(std::string_view bytes, uint64_t seed) {
  for (const char byte : bytes) seed = (seed ^ static_cast<unsigned char>(byte)) * 0x100000001b3u;
  return seed;
}

const Cpu& cpu() {
  static const Cpu* const found = new Cpu(read_cpu());
  return *found;
}

simResult compile_source(const TemporaryFolder& folder, const char* source, const std::vector<std::string>& options,
                         const std::string& object) {
  if (const simResult result = need_compiler()) return result;
  const std::string input = folder.file("source.c"), messages = folder.file("messages");
  if (!folder.exists() || !write_file(input, source))
    return fail(SIM_ERROR_COMPILER, "cannot write to the temporary folder %s: %s", folder.path().c_str(),
                std::strerror(errno));
  std::vector<std::string> command = compiler().command;
  command.insert(command.end(), std::begin(kFlags), std::end(kFlags));
  command.insert(command.end(), options.begin(), options.end());
  // From its standard input: messages then name no temporary file.
  for (const char* word : {"-x", "c", "-", "-o"}) command.emplace_back(word);
  command.push_back(object);
  command.emplace_back("-lm");
  const Outcome outcome = run(std::move(command), input, messages, folder.path());
  if (!outcome.ran)
    return fail(SIM_ERROR_COMPILER, "%s did not run: %s", compiler().command[0].c_str(), outcome.problem.c_str());
  if (outcome.code == 0 && access(object.c_str(), R_OK) == 0) return SIM_SUCCESS;
  const std::string text = messages_in(messages);
  return fail(SIM_ERROR_SOURCE, "%s", text.empty() ? "the compiler failed without a message" : text.c_str());
}

simResult compiler_identity(std::string* text) {
  if (const simResult result = need_compiler()) return result;
  static const std::string& version = *new std::string(compiler_version());
  char hashes[64];
  std::snprintf(hashes, sizeof hashes, "%016" PRIx64 " %016" PRIx64, cpu().features, command_hash());
  *text = "simchip " SIM_VERSION "; " + version + "; " + cpu().name + "; " + hashes;
  return SIM_SUCCESS;
}

}  // namespace simchip
