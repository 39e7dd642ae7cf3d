// SPDX-License-Identifier: Apache-2.0
// Which line of Python made a call: the innermost outside torch and torch_fl.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace torch_fl::glue {

/// With the interpreter's lock.
void prepare_call_sites();
/// Sites of earlier recordings are forgotten.
void begin_call_sites(uint32_t recording);

/// The number of the site at which the calling thread is; 0: none, or the recording is over. Takes the interpreter's
/// lock for code never seen before, and none otherwise.
uint32_t call_site(uint32_t recording) noexcept;

/// With the interpreter's lock. The texts of the sites, the first empty: "model.py:12 (forward)". `notes` gets what is
/// missing, if anything.
std::vector<std::string> end_call_sites(std::vector<std::string>& notes);

}  // namespace torch_fl::glue
