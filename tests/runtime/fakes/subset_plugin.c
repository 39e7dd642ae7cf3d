/* SPDX-License-Identifier: Apache-2.0
 * Another plugin's chip with some of its kernels only, and without its compiler. FL_SUBSET_OF: the plugin's path;
 * FL_SUBSET_KERNELS: the operators of the rows to keep, between commas. FL_SUBSET_ALIGNED: aten::add.Tensor fails where
 * an address is no multiple of 4096. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "torch_fl/fl_plugin.h"

static fl_plugin plugin;
static const fl_kernel* rows[2048];

static const fl_host* given;
static fl_kernel add;
static fl_kernel_fn add_run;

static int is_aligned(const fl_tensor* tensor) { return tensor == NULL || tensor->address % 4096 == 0; }

static fl_status aligned_add(const fl_call* call) {
  int fine = is_aligned(call->outs[0]);
  for (uint32_t i = 0; i < call->n_args; ++i) {
    if (call->args[i].kind == FL_TENSOR) fine &= is_aligned(call->args[i].u.tensor);
  }
  if (fine) return add_run(call);
  given->set_error(FL_INTERNAL, "an address is not aligned");
  return FL_INTERNAL;
}

static const fl_kernel* row_of(const fl_kernel* row) {
  if (getenv("FL_SUBSET_ALIGNED") == NULL || strcmp(row->op, "aten::add.Tensor") != 0) return row;
  add = *row;
  add_run = row->run;
  add.run = aligned_add;
  return &add;
}

static int is_kept(const char* op, const char* list) {
  const size_t length = strlen(op);
  for (const char* at = list; (at = strstr(at, op)) != NULL; ++at) {
    if ((at == list || at[-1] == ',') && (at[length] == ',' || at[length] == '\0')) return 1;
  }
  return 0;
}

static const fl_plugin* failed(const fl_host* host, const char* why) {
  host->set_error(FL_INTERNAL, why);
  return NULL;
}

const fl_plugin* fl_plugin_get(const fl_host* host) {
  const char* list = getenv("FL_SUBSET_KERNELS");
  const char* path = getenv("FL_SUBSET_OF");
  void* library = path == NULL ? NULL : dlopen(path, RTLD_NOW | RTLD_LOCAL);
  fl_plugin_get_fn get = library == NULL ? NULL : (fl_plugin_get_fn)dlsym(library, FL_PLUGIN_ENTRY);
  const fl_plugin* whole = get == NULL ? NULL : get(host);
  uint32_t n = 0;
  given = host;
  if (list == NULL || whole == NULL) return failed(host, "set FL_SUBSET_OF and FL_SUBSET_KERNELS");
  plugin = *whole;
  for (uint32_t i = 0; i < whole->n_kernels && n < sizeof rows / sizeof rows[0]; ++i) {
    if (is_kept(whole->kernels[i]->op, list)) rows[n++] = row_of(whole->kernels[i]);
  }
  plugin.name = CHIP;
  plugin.kernels = rows;
  plugin.n_kernels = n;
  plugin.compiler = NULL;
  plugin.tuning = NULL;
  return &plugin;
}
