// SPDX-License-Identifier: Apache-2.0
// What needs a process of its own: fork, and constructors that throw.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <thread>

#include "loader.h"

namespace torch_fl::runtime {
namespace {

std::string fake(const std::string& name) { return std::string(FAKES_DIR) + "/" + name + ".so"; }

/// Runs f in a forked child; its answer is the exit status.
template <typename F>
int in_child(F f) {
  const pid_t child = fork();
  if (child == 0) _exit(f());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

std::string refusal_of(Device& device) {
  try {
    device.handle();
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(Process, ForkBeforeTheFirstUseIsFineAndAfterItIsRefused) {
  Registry& registry = Registry::get();
  registry.load({{fake("good"), "test"}});
  Device& device = registry.device(0);
  EXPECT_EQ(in_child([&] { return registry.in_bad_fork() || !refusal_of(device).empty() ? 1 : 0; }), 0);

  Block* block = device.allocator().allocate(1000, 0);
  EXPECT_FALSE(registry.in_bad_fork());
  EXPECT_EQ(in_child([&] {
              if (!registry.in_bad_fork()) return 1;
              // Also the device that was never opened.
              for (Device* d : {&device, &registry.device(1)}) {
                const std::string message = refusal_of(*d);
                if (message.find("cannot use fl devices in a forked process; use the spawn start method") != 0)
                  return 2;
              }
              device.allocator().free(block);  // the tensor's destructor runs in the child too
              registry.shutdown();
              return 0;
            }),
            0);
  EXPECT_FALSE(registry.in_bad_fork()) << "the parent goes on";
  device.allocator().free(block);
}

TEST(Process, AForkWhileAnotherThreadAllocatesDoesNotHang) {
#ifdef __SANITIZE_ADDRESS__
  // Its allocator does not hold its locks over a fork, so a child of a process whose other thread was inside malloc
  // waits for ever in its first malloc (__sanitizer::Mutex::Lock under __asan_malloc), whatever this library does.
  GTEST_SKIP() << "AddressSanitizer's own malloc can hang in such a child; the plain and the TSan build run this";
#endif
  Registry& registry = Registry::get();
  Device& device = registry.device(0);
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    while (!stop) device.allocator().free(device.allocator().allocate(1000, 0));
  });
  Block* block = device.allocator().allocate(1000, 0);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(in_child([&] {
                alarm(20);
                device.allocator().free(block);
                return refusal_of(device).empty() ? 1 : 0;
              }),
              0);
  }
  stop = true;
  busy.join();
  device.allocator().free(block);
}

TEST(Process, AConstructorThatThrowsIsCaught) {
  EXPECT_EQ(in_child([] {
              try {
                load_plugin(fake("throws_in_constructor"));
              } catch (const Refused& refused) {
                const std::string reason = refused.what();
                if (reason.find("loading it threw a C++ exception: the constructor is broken") != 0) return 1;
                load_plugin(fake("good"));  // the dynamic linker still serves this thread
                return 0;
              }
              return 3;
            }),
            0);
}

}  // namespace
}  // namespace torch_fl::runtime
