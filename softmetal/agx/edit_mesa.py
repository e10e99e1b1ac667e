#!/usr/bin/env python3
"""Teaches an unpacked Mesa the matrix instruction of Apple GPUs, and to say how many instructions of each kind there are.

  edit_mesa.py FOLDER

The instruction has the registers of the real one: two elements a lane of each of three matrices, two of the sum. Its
encoding is not the real one (it is ffma's): nothing that comes out of this runs.
"""
import pathlib
import sys

EDITS = [
    # Programs of the system that nothing can be waited for of.
    ("src/asahi/libagx/meson.build", "depends : [prog_mesa_clc, agx_pack]", "depends : [agx_pack]"),
    ("src/asahi/libagx/meson.build", "  depends : [prog_vtn_bindgen],\n", ""),
    ("src/compiler/nir/nir_intrinsics.py",
     'intrinsic("quad_ballot_agx",',
     'intrinsic("simd_matrix_agx", src_comp=[2, 2, 2], dest_comp=2, bit_sizes=[32], flags=[CAN_ELIMINATE])\n{}'),
    ("src/asahi/compiler/agx_opcodes.py",
     'op("fmul",\n',
     'op("simd_matrix_fmadd", encoding = (0x3A, 0x3F, 6, 8), srcs = 3)\n\n{}'),
    ("src/asahi/compiler/agx_compile.c",
     "   case nir_intrinsic_quad_ballot_agx: {\n",
     "   case nir_intrinsic_simd_matrix_agx:\n"
     "      agx_simd_matrix_fmadd_to(b, dst, agx_src_index(&instr->src[0]), agx_src_index(&instr->src[1]),\n"
     "                               agx_src_index(&instr->src[2]));\n"
     "      agx_emit_cached_split(b, dst, 2);\n"
     "      return NULL;\n\n{}"),
    ("src/asahi/compiler/agx_compile.c",
     "      nr_ins++;\n",
     "{}      kinds[I->op]++;\n"),
    ("src/asahi/compiler/agx_compile.c",
     "   unsigned nr_ins = 0, spills = 0, fills = 0;\n",
     "{}   unsigned kinds[AGX_NUM_OPCODES] = {{0}};\n"),
    ("src/asahi/compiler/agx_compile.c",
     "   struct agx_cycle_estimate cycles = agx_estimate_cycles(ctx);\n",
     "   for (unsigned i = 0; i < AGX_NUM_OPCODES; ++i)\n"
     "      if (kinds[i])\n"
     '         printf("%s=%u ", agx_opcodes_info[i].name, kinds[i]);\n'
     '   printf("\\n");\n{}'),
]


def main() -> None:
    root = pathlib.Path(sys.argv[1])
    for name, place, text in EDITS:
        path = root / name
        source = path.read_text()
        if source.count(place) != 1:
            sys.exit(f"error: {path} is not the file that this edits: {place.strip()!r} is there {source.count(place)} times")
        path.write_text(source.replace(place, text.format(place)))


main()
