/* SPIR-V with one kernel in, what Mesa's compiler for Apple GPUs says of it out. Built by scripts/fetch_agx.sh inside of
 * Mesa's source, in the place of its own program for its own kernels.
 *   agx_kernel FILE.spv [--listing]
 * One line of `name=value` on stdout; with --listing Mesa's listing of the program before it.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "asahi/compiler/agx_compile.h"
#include "asahi/compiler/agx_nir.h"
#include "compiler/spirv/nir_spirv.h"
#include "nir.h"
#include "nir_builder.h"
#include "nir_precompiled.h"

static void *read_all(const char *path, size_t *size) {
  FILE *file = fopen(path, "rb");
  if (!file) return NULL;
  fseek(file, 0, SEEK_END);
  *size = ftell(file);
  rewind(file);
  void *bytes = malloc(*size);
  if (fread(bytes, 1, *size, file) != *size) return NULL;
  fclose(file);
  return bytes;
}

/* Variables to values, values to fewer. */
static void simplify(nir_shader *s) {
  bool more;
  do {
    more = false;
    NIR_PASS(more, s, nir_split_var_copies);
    NIR_PASS(more, s, nir_split_struct_vars, nir_var_function_temp);
    NIR_PASS(more, s, nir_lower_var_copies);
    NIR_PASS(more, s, nir_lower_vars_to_ssa);
    NIR_PASS(more, s, nir_opt_deref);
    NIR_PASS(more, s, nir_opt_copy_prop_vars);
    NIR_PASS(more, s, nir_copy_prop);
    NIR_PASS(more, s, nir_opt_remove_phis);
    NIR_PASS(more, s, nir_lower_phis_to_scalar, true);
    NIR_PASS(more, s, nir_opt_cse);
    NIR_PASS(more, s, nir_opt_algebraic);
    NIR_PASS(more, s, nir_opt_constant_folding);
    NIR_PASS(more, s, nir_opt_undef);
    NIR_PASS(more, s, nir_lower_undef_to_zero);
    NIR_PASS(more, s, nir_opt_dead_cf);
    NIR_PASS(more, s, nir_opt_dce);
    NIR_PASS(more, s, nir_opt_loop_unroll);
  } while (more);
}

static void complain(void *data, enum nir_spirv_debug_level level, size_t offset, const char *message) {
  if (level == NIR_SPIRV_DEBUG_LEVEL_ERROR) fprintf(stderr, "%s\n", message);
}

/* One function, its memory with sizes and places, its arguments still arguments. */
static nir_shader *to_nir(const uint32_t *words, size_t size) {
  static const struct spirv_to_nir_options options = {
      .environment = NIR_SPIRV_OPENCL,
      .shared_addr_format = nir_address_format_62bit_generic,
      .global_addr_format = nir_address_format_62bit_generic,
      .temp_addr_format = nir_address_format_62bit_generic,
      .constant_addr_format = nir_address_format_64bit_global,
      .create_library = true,
      .debug.func = complain,
  };
  nir_shader *s =
      spirv_to_nir(words, size / 4, NULL, 0, MESA_SHADER_KERNEL, "library", &options, &agx_nir_options);
  if (!s) return NULL;
  nir_fixup_is_exported(s);
  const nir_lower_compute_system_values_options ids = {.global_id_is_32bit = true};
  NIR_PASS(_, s, nir_lower_system_values);
  NIR_PASS(_, s, nir_lower_calls_to_builtins);
  NIR_PASS(_, s, nir_lower_compute_system_values, &ids);
  NIR_PASS(_, s, nir_lower_variable_initializers, nir_var_function_temp);
  NIR_PASS(_, s, nir_lower_returns);
  NIR_PASS(_, s, nir_inline_functions);
  nir_remove_non_exported(s);
  NIR_PASS(_, s, nir_copy_prop);
  NIR_PASS(_, s, nir_opt_deref);
  nir_lower_constant_to_temp(s);
  NIR_PASS(_, s, nir_lower_variable_initializers, ~0);
  const nir_variable_mode placed = nir_var_shader_temp | nir_var_function_temp | nir_var_mem_shared | nir_var_mem_global;
  NIR_PASS(_, s, nir_lower_vars_to_explicit_types, placed | nir_var_uniform, glsl_get_cl_type_size_align);
  simplify(s);
  NIR_PASS(_, s, nir_remove_dead_variables, nir_var_all, NULL);
  NIR_PASS(_, s, nir_lower_vars_to_explicit_types, placed | nir_var_mem_constant, glsl_get_cl_type_size_align);
  NIR_PASS(_, s, nir_lower_memcpy);
  NIR_PASS(_, s, nir_lower_explicit_io, nir_var_mem_constant, nir_address_format_64bit_global);
  NIR_PASS(_, s, nir_lower_convert_alu_types, NULL);
  NIR_PASS(_, s, nir_opt_if, 0);
  NIR_PASS(_, s, nir_opt_idiv_const, 16);
  simplify(s);
  return s;
}

/* Arguments are in uniform registers when a kernel starts. */
static nir_def *argument(nir_builder *b, unsigned components, unsigned bits, unsigned offset) {
  return nir_load_preamble(b, components, bits, .base = offset / 2);
}

static void say(void *data, unsigned *id, enum util_debug_type type, const char *format, va_list list) {
  vsnprintf(data, 1024, format, list);
}

int main(int argc, char **argv) {
  size_t size = 0;
  void *words = argc > 1 ? read_all(argv[1], &size) : NULL;
  if (!words) {
    fprintf(stderr, "usage: agx_kernel FILE.spv [--listing]\n");
    return 2;
  }
  if (argc > 2 && !strcmp(argv[2], "--listing")) setenv("AGX_MESA_DEBUG", "shaders", 1);
  glsl_type_singleton_init_or_ref();
  nir_shader *library = to_nir(words, size);
  if (!library) {
    fprintf(stderr, "%s: Mesa does not take it\n", argv[1]);
    return 1;
  }
  const struct nir_precomp_opts layout_of = {.arg_align_B = 2};
  nir_foreach_entrypoint(kernel, library) {
    const struct nir_precomp_layout layout = nir_precomp_derive_layout(&layout_of, kernel);
    nir_shader *s = nir_precompiled_build_variant(kernel, 0, &agx_nir_options, &layout_of, argument);
    agx_link_libagx(s, library);
    NIR_PASS(_, s, nir_lower_vars_to_explicit_types, nir_var_mem_shared, glsl_get_cl_type_size_align);
    NIR_PASS(_, s, nir_lower_explicit_io, nir_var_mem_shared, nir_address_format_62bit_generic);
    bool more;
    do {
      more = false;
      NIR_PASS(more, s, nir_opt_loop);
    } while (more);
    agx_preprocess_nir(s, NULL);

    /* G13G: one cluster of cores, whose caches agree on atomics. */
    struct agx_shader_key key = {
        .libagx = library,
        .has_scratch = true,
        .promote_constants = true,
        .reserved_preamble = layout.size_B / 2,
        .dev.needs_g13x_coherency = U_TRISTATE_NO,
    };
    char stats[1024] = "";
    struct util_debug_callback debug = {.debug_message = say, .data = stats};
    struct agx_shader_part part;
    agx_compile_shader_nir(s, &key, &debug, &part);
    unsigned instructions = 0, alu = 0, scib = 0, ic = 0, bytes = 0, registers = 0, uniforms = 0, scratch = 0, threads = 0,
             loops = 0, spills = 0, fills = 0;
    if (sscanf(stats, "%*s shader: %u inst, %u alu, %u fscib, %u ic, %u bytes, %u regs, %u uniforms, %u scratch, %u threads, "
               "%u loops, %u:%u", &instructions, &alu, &scib, &ic, &bytes, &registers, &uniforms, &scratch, &threads,
               &loops, &spills, &fills) != 12) {
      fprintf(stderr, "%s: Mesa says '%s'\n", argv[1], stats);
      return 1;
    }
    printf("instructions=%u registers=%u uniforms=%u spills=%u fills=%u scratch=%u threads=%u threadgroup=%u\n",
           instructions, registers, uniforms, spills, fills, scratch, threads, part.info.local_size);
  }
  return 0;
}
