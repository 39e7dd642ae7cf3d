/* SPDX-License-Identifier: Apache-2.0
 * Another plugin's chip with some of its kernels only, and without its compiler. FL_SUBSET_OF: the plugin's path;
 * FL_SUBSET_KERNELS: the operators of the rows to keep, between commas. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "torch_fl/fl_plugin.h"

static fl_plugin plugin;
static const fl_kernel* rows[2048];

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
  if (list == NULL || whole == NULL) return failed(host, "set FL_SUBSET_OF and FL_SUBSET_KERNELS");
  plugin = *whole;
  for (uint32_t i = 0; i < whole->n_kernels && n < sizeof rows / sizeof rows[0]; ++i) {
    if (is_kept(whole->kernels[i]->op, list)) rows[n++] = whole->kernels[i];
  }
  plugin.name = CHIP;
  plugin.kernels = rows;
  plugin.n_kernels = n;
  plugin.compiler = NULL;
  plugin.tuning = NULL;
  return &plugin;
}
