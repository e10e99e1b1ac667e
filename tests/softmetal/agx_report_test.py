"""The report on Apple's registers, as far as it needs no compiler: the text for the translator, the table and back."""

import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "softmetal/agx"))

import lower  # noqa: E402
import table  # noqa: E402


def bfloats(*lines):
    counter = iter(range(100))
    return [out for line in lines for out in lower.bfloats(line, lambda: next(counter))]


class LowerTest(unittest.TestCase):
    def test_spaces(self):
        for before, after in [
            ("  store i32 %x, ptr %ptr, align 4", "  store i32 %x, ptr addrspace(4) %ptr, align 4"),
            ("  %a = load float, ptr addrspace(4) %add.ptr.i, align 4", "  %a = load float, ptr addrspace(2) %add.ptr.i, align 4"),
            ("  %b = alloca [4 x i32], align 16, addrspace(5)", "  %b = alloca [4 x i32], align 16"),
            ("  %c = addrspacecast ptr addrspace(5) %b to ptr", "  %c = addrspacecast ptr %b to ptr addrspace(4)"),
            ("  call void @llvm.memcpy.p5.p1.i64(ptr addrspace(5) %b, ptr addrspace(1) %p, i64 16, i1 false)",
             "  call void @llvm.memcpy.p0.p1.i64(ptr %b, ptr addrspace(1) %p, i64 16, i1 false)"),
            ("@lds = internal addrspace(3) global [4 x i32] undef, align 16", "@lds = internal addrspace(3) global [4 x i32] undef, align 16"),
            ("@table = internal addrspace(4) constant [4 x i32] zeroinitializer", "@table = internal addrspace(2) constant [4 x i32] zeroinitializer"),
        ]:
            self.assertEqual(lower.spaces(before), after)

    def test_bfloat_is_the_upper_half_of_a_float(self):
        self.assertEqual(bfloats("  %a = fpext bfloat %x to float"),
                         ["  %bf0 = zext i16 %x to i32", "  %bf1 = shl i32 %bf0, 16", "  %a = bitcast i32 %bf1 to float"])
        self.assertEqual(bfloats("  %c = load <4 x bfloat>, ptr addrspace(1) %p, align 8"), ["  %c = load <4 x i16>, ptr addrspace(1) %p, align 8"])
        self.assertEqual(bfloats("  %e = select i1 %q, bfloat %r, bfloat 0xR3F80"), ["  %e = select i1 %q, i16 %r, i16 16256"])
        self.assertEqual(bfloats("  %n = fneg bfloat %c"), ["  %n = xor i16 %c, -32768"])
        self.assertEqual(bfloats("declare bfloat @llvm.fabs.bf16(bfloat) #4", "  %a = tail call bfloat @llvm.fabs.bf16(bfloat %x)"),
                         ["  %a = and i16 %x, 32767"])

    def test_bfloat_is_rounded(self):
        lowered = bfloats("  %b = fptrunc <2 x float> %y to <2 x bfloat>")
        self.assertIn("fcmp uno <2 x float> %y, %y", lowered[7])
        self.assertEqual(lowered[-1], "  %b = trunc <2 x i32> %bf8 to <2 x i16>")

    def test_arithmetic_in_bfloat_is_refused(self):
        with self.assertRaises(ValueError):
            bfloats("  %s = fadd bfloat %a, %b")

    def test_a_load_from_either_memory_is_from_global(self):
        text = lower.flat_as_global("  %5 = addrspacecast ptr addrspace(4) %a to ptr\n  %6 = load i32, ptr %5, align 4\n")
        self.assertEqual(text, '  %"5.bits" = ptrtoint ptr addrspace(4) %a to i64\n  %5 = inttoptr i64 %"5.bits" to ptr addrspace(1)\n'
                               "  %6 = load i32, ptr addrspace(1) %5, align 4\n")
        both = "  %5 = addrspacecast ptr addrspace(3) %a to ptr\n"
        self.assertEqual(lower.flat_as_global(both), both)

    def test_places_within_variables_have_names(self):
        place = "getelementptr inbounds (i8, ptr addrspace(3) @s, i32 16)"
        text = lower.lower("define amdgpu_kernel void @softmetal_grid() #0 {\nentry:\n  br label %next\nnext:\n"
                           f"  %a = load i32, ptr addrspace(3) {place}, align 4\n  store i32 1, ptr addrspace(3) {place}, align 4\n  ret void\n}}\n", (32, 1, 1))
        self.assertIn("entry:\n  %place0 = getelementptr inbounds i8, ptr addrspace(3) @s, i32 16\n  br label %next", text)
        self.assertIn("  %a = load i32, ptr addrspace(3) %place0, align 4\n  store i32 1, ptr addrspace(3) %place0, align 4", text)

    def test_a_module(self):
        text = lower.lower('target triple = "amdgcn-amd-amdhsa"\n'
                           "define protected amdgpu_kernel void @softmetal_grid(ptr addrspace(1) %a) local_unnamed_addr #0 {\n"
                           "  tail call void @llvm.assume(i1 %x)\n  ret void, !dbg !7\n}\n"
                           'attributes #0 = { convergent nounwind "target-cpu"="gfx90a" }\n!7 = !{}\n', (64, 2, 1))
        self.assertIn("define spir_kernel void @softmetal_grid(ptr addrspace(1) %a) #0 !reqd_work_group_size !0 {", text)
        self.assertIn("attributes #0 = { convergent nounwind }", text)
        self.assertIn("!0 = !{i32 64, i32 2, i32 1}", text)
        for gone in ("amdgcn", "assume", "!7", "gfx90a"):
            self.assertNotIn(gone, text)


def kernel(name, constants, spills=0, threads=256, most=1024, registers=40):
    return {"kernel": name, "constants": constants, "threads": (threads, 1, 1), "bytes": 0,
            "figures": {"kinds": {"ffma": 3, "device_load": 2, "simd_matrix_fmadd": 1, "stop": 1, "stack_store": spills, "xor": 2},
                        "instructions": 9 + spills, "registers": registers, "uniforms": 8, "spills": spills, "fills": spills, "scratch": 0,
                        "threads": most, "threadgroup": 0}}


class TableTest(unittest.TestCase):
    def test_constants_that_differ(self):
        kernels = [kernel("a", {"A_ROWS": "8u", "A_BIAS": "true", "A_TYPE": "1u"}), kernel("a", {"A_ROWS": "16u", "A_BIAS": "false", "A_TYPE": "1u"})]
        self.assertEqual(table.short_constants(kernels), ["rows 8, bias", "rows 16"])

    def test_formats_by_name(self):
        kernels = [kernel("a", {"A_FORMAT": "2u", "A_FORMAT_UP": "2u"}), kernel("a", {"A_FORMAT": "12352u", "A_FORMAT_UP": "2u"})]
        self.assertEqual(table.short_constants(kernels), ["format bf16", "format q4_k"])

    def test_kinds(self):
        row = table.rows([kernel("a", {})])[0]
        self.assertEqual([row[k] for k in table.COLUMNS], [1, 3, 2, 2, 0, 0, 0, 1])
        self.assertEqual(row["instructions"], 9)

    def test_to_markdown_and_back(self):
        rows = table.compare(table.rows([kernel("a", {"A_ROWS": "8u"}), kernel("a", {"A_ROWS": "16u"}, spills=7), kernel("b", {})]), [])
        text = "before\n\n" + table.to_markdown(rows) + "\nafter | not | a row\n"
        self.assertIn("**7 : 7**", text)
        self.assertEqual(table.from_markdown(text), rows)
        self.assertEqual([r["before"] for r in rows], ["new"] * 3)

    def test_beside_the_last(self):
        old = table.rows([kernel("a", {}), kernel("b", {}, spills=2)])
        new = table.compare(table.rows([kernel("a", {}), kernel("b", {})]), table.from_markdown(table.to_markdown(old)))
        self.assertEqual([r["before"] for r in new], ["=", "11, 40, 2 : 2"])

    def test_the_worst_of_each_kernel(self):
        rows = table.compare(table.rows([kernel("a", {"A_ROWS": "8u"}), kernel("a", {"A_ROWS": "16u"}, spills=7), kernel("b", {})]), [])
        self.assertEqual([(r["kernel"], r["constants"], r["spills : fills"]) for r in table.worst(rows)],
                         [("a", "2 variants; rows 16", "7 : 7"), ("b", "", "0 : 0")])

    def test_faults(self):
        broken = {"kernel": "d", "constants": {}, "threads": (32, 1, 1), "bytes": 0, "error": "it does not compile"}
        rows = table.rows([kernel("a", {}), kernel("b", {}, spills=2), kernel("c", {}, threads=512, most=384), broken])
        self.assertEqual(table.faults(rows),
                         ["b: 2 : 2 spills : fills", "c: 512 threads, its registers allow 384", "d: it does not compile"])

    def test_occupancy(self):
        self.assertEqual(table.occupancy(256, 1024, 0), 100)
        self.assertEqual(table.occupancy(256, 832, 0), 75)  # three whole threadgroups
        self.assertEqual(table.occupancy(128, 1024, 20992), 25)  # two of them fit into threadgroup memory
        self.assertEqual(table.occupancy(512, 384, 0), 0)


if __name__ == "__main__":
    unittest.main()
