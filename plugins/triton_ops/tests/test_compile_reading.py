"""What is read from the compilers' texts: values, locations, instructions, runs of equal addresses."""

import pytest

from statehal_triton_ops.compile.accesses import Move, _share, moves
from statehal_triton_ops.compile.arithmetic import arithmetic
from statehal_triton_ops.compile.build import Compiled
from statehal_triton_ops.compile.dataflow import Program
from statehal_triton_ops.compile.instructions import Access, accesses
from statehal_triton_ops.compile.locations import MlirLocations
from statehal_triton_ops.compile.repeats import Repeats

LOOP = """\
module {
  tt.func public @kernel(%x: !tt.ptr<bf16> loc("x"(#loc)), %n: i32 loc("n"(#loc))) {
    %pid = tt.get_program_id x : i32 loc(#loc1)
    %c16 = arith.constant 16 : i32 loc(#loc1)
    %start = arith.muli %pid, %n : i32 loc(#loc2)
    %0:2 = scf.for %i = %c16 to %n step %c16 iter_args(%at = %start, %other = %pid) -> (i32, i32)  : i32 {
      %next = arith.addi %at, %c16 : i32 loc(#loc1)
      scf.yield %next, %other : i32, i32 loc(#loc1)
    } loc(#loc1)
    scf.if %true {
      %same = arith.constant 1 : i32 loc(#loc1)
      %p = tt.addptr %x, %0#KEY : !tt.ptr<bf16>, i32 loc(#loc1)
    } else {
      %same = arith.muli %pid, %n : i32 loc(#loc3)
      %q = tt.addptr %x, %c16 : !tt.ptr<bf16>, i32 loc(#loc1)
    } loc(#loc1)
    tt.return loc(#loc)
  } loc(#loc)
} loc(#loc)
#loc = loc("/a/kernel.py":1:0)
#loc1 = loc("/a/kernel.py":2:0)
#loc2 = loc(callsite(#loc4 at #loc5))
#loc3 = loc("/a/kernel.py":9:1)
#loc4 = loc("helper.py":7:3)
#loc5 = loc("at here"(#loc3))
"""


def test_a_product_is_followed_through_a_loop_and_named_by_its_place() -> None:
    assert arithmetic(LOOP.replace("KEY", "0")).word_products == ["helper.py:7 in kernel.py:9"]
    assert arithmetic(LOOP.replace("KEY", "1")).word_products == []
    wide = LOOP.replace("KEY", "0").replace("%start = arith.muli %pid, %n : i32", "%start = arith.muli %pid, %n : i64")
    assert arithmetic(wide).word_products == []
    constant = LOOP.replace("KEY", "0").replace("arith.muli %pid, %n : i32 loc(#loc2)", "arith.muli %pid, %c16 : i32")
    assert arithmetic(constant).word_products == []


def test_a_name_that_is_used_again_in_another_region_is_another_value() -> None:
    values = Program(LOOP.replace("KEY", "0")).values
    assert sorted(value.operation for name, value in values.items() if name.startswith("%same@")) == [
        "arith.constant", "arith.muli",
    ]  # fmt: skip


def test_locations_of_calls() -> None:
    locations = MlirLocations(LOOP)
    assert locations.chain("#loc2") == ((7, 3), (9, 1))
    assert locations.where("tt.return loc(#loc2)") == "helper.py:7 in kernel.py:9"
    assert locations.where("tt.return loc(unknown)") == "an unknown line"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (r'%1 = call i32 asm sideeffect "mov.u32 $0, 0x0;\0A\09@$2 ld.global.b32 { $0 }, [ $1 + 0 ];"', ("load", 4)),
        (r'%1 = call i32 asm sideeffect "mov.u32 $0, 0;\0A\09ld.global.L1::evict_last.v4.b32 { $0 }"', ("load", 16)),
        (r'call void asm sideeffect "@$5 st.global.v2.b64 [ $4 + 0 ], { $0, $1 };"', ("store", 16)),
        (r'call void asm sideeffect "cp.async.cg.shared.global [ $0 + 0 ], [ $1 + 0 ], 0x10, 0x10;"', ("load", 16)),
        (r'call void asm sideeffect "st.shared.v4.b32 [ $4 + 0 ], { $0 };"', None),
        ("%3 = tail call <4 x i32> @llvm.amdgcn.raw.ptr.buffer.load.v4i32(ptr addrspace(8) %1)", ("load", 16)),
        ("tail call void @llvm.amdgcn.raw.ptr.buffer.store.i16(i16 %1, ptr addrspace(8) %2)", ("store", 2)),
        ("%3 = load <2 x bfloat>, ptr addrspace(1) %2, align 4", ("load", 4)),
        ("store <4 x i32> %1, ptr addrspace(1) %2, align 16", ("store", 16)),
        ("store <2 x i32> <i32 1, i32 2>, ptr addrspace(1) %2, align 16", ("store", 8)),
        ("%3 = load i32, ptr addrspace(3) %2, align 4", None),
        ("declare i32 @llvm.amdgcn.raw.ptr.buffer.load.i32(ptr addrspace(8) readonly)", None),
    ],
)
def test_widths_of_instructions(line: str, expected: tuple[str, int] | None) -> None:
    assert [(one.kind, one.width) for one in accesses(line)] == ([] if expected is None else [expected])


TILE = """\
    %i = tt.make_range {end = 512 : i32, start = 0 : i32} : tensor<512xi32, #b> loc(#loc)
    %c8 = arith.constant dense<8> : tensor<512xi32, #b> loc(#loc)
    %row = arith.divsi %i, %c8 : tensor<512xi32, #b> loc(#loc)
    %p = tt.addptr %ids, %row : tensor<512x!tt.ptr<i64>, #b>, tensor<512xi32, #b> loc(#loc)
    %id = tt.load %p : tensor<512x!tt.ptr<i64>, #b> loc(#loc1)
    %q = tt.addptr %x, %id : tensor<512x!tt.ptr<bf16>, #b>, tensor<512xi64, #b> loc(#loc)
    %at = arith.addi %id, %i : tensor<512xi64, #b> loc(#loc)
    %r = tt.addptr %x, %at : tensor<512x!tt.ptr<bf16>, #b>, tensor<512xi64, #b> loc(#loc)
    tt.store %r, %v : tensor<512x!tt.ptr<bf16>, #b> loc(#loc2)
#loc1 = loc("k.py":1:1)
#loc2 = loc("k.py":2:2)
"""


def test_runs_of_equal_addresses() -> None:
    lines = TILE.splitlines()
    repeats = Repeats(TILE)
    assert repeats.of_access(4, lines[4]) == 8
    assert repeats.of_access(8, lines[8]) == 1


def moved(llir: str) -> list[tuple[str, int, list[int]]]:
    compiled = Compiled("", TILE, llir, "", b"", 0, threads=128)
    return [(move.kind, move.moved_bytes, move.widths) for move in moves(compiled)]


def test_accesses_go_to_the_line_that_they_come_from() -> None:
    llir = """\
%1 = load i64, ptr addrspace(1) %0, !dbg !5
store <4 x i16> %1, ptr addrspace(1) %2, align 8, !dbg !6
!5 = !DILocation(line: 1, column: 1, scope: !1)
!6 = !DILocation(line: 2, column: 2, scope: !1)
"""
    assert moved(llir) == [("load", 512, [8]), ("store", 1024, [8])]


def test_an_access_without_its_location_goes_where_its_size_fits() -> None:
    assert moved("store i16 %1, ptr addrspace(1) %2, !dbg !9") == [("load", 512, []), ("store", 1024, [2])]
    assert Move("store", 1024, 2, 8.0, (), "", [2]).narrow
    assert not Move("load", 512, 8, 4.0, (), "", [8]).bulk


def test_what_an_unrolled_loop_moves_is_one() -> None:
    compiled = Compiled("", TILE + TILE.replace("%", "%again"), "", "", b"", 0, threads=128)
    assert [(move.kind, move.moved_bytes, move.thread_bytes) for move in moves(compiled)] == [
        ("load", 1024, 4.0), ("store", 2048, 8.0),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("widths", "of_small", "of_bulk"),
    [
        ([16, 16, 4], [4], [16, 16]),
        ([16, 16, 4, 4, 4], [4, 4, 4], [16, 16]),
        ([4] * 9, [4], [4] * 8),
        ([16, 4, 4, 4, 4, 4], [4], [16, 4, 4, 4, 4]),
    ],
    ids=["one each", "a loop over the small ones unrolled", "a lost hint", "half of a hint lost"],
)
def test_a_line_that_moves_small_and_large_fields(widths: list[int], of_small: list[int], of_bulk: list[int]) -> None:
    # of 128 threads: 32 bytes of the large field each, 4 of the small one
    small = Move("load", 512, 4, 4.0, (), "a line")
    bulk = Move("load", 4096, 4, 32.0, (), "a line")
    _share([Access("load", width, ()) for width in widths], small, bulk)
    assert (small.widths, bulk.widths) == (of_small, of_bulk)
    assert bulk.narrow is (4 in of_bulk)
