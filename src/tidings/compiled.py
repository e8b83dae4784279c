"""How kernels are compiled: Numba, cached on disk, without the interpreter's lock.

Kernels are free functions over arrays (docs/decisions/0003-compiled-kernels.md). This module is the only one that
names the compiler's options; it is imported by the rooms that have kernels, never by ``import tidings``.

The compiler renews a kernel on disk when the file it is written in changes, but not when a constant or an inner
function that it took from another file does. A kernel that is older than any source that its file imports, directly or
not, is therefore forgotten here, before it can be used. Imports are found by their text, which takes milliseconds.

Two families. `compiled` and `compiled_inline` may allocate, so they count who holds an array: an atomic addition for
each array of each call. The *borrowing* kernels allocate nothing and return no array, and whoever calls the outermost
holds all arrays until it comes back; counting would protect nothing, and takes half of the time of a loop of many small
steps. One that allocates does not compile, so the premise is checked.

What keeps compilation short, by what the compiler spends its time on (docs/decisions/0032-compiling-once.md):

- The inner kernels of the borrowing family are only translated. The outermost is linked to all that it calls, optimised
  and made machine code, once; so only outermost kernels are on disk.
- Many arrays go from step to step as one pointer: `lend` them as a record.
- Constants do not make kernels of their own: an inner kernel is translated once for the types of its arguments.
- Operators on plain numbers are typed without a search (`tidings._scalars`), and passes that only concern kernels that
  allocate are left out (docs/decisions/0054-a-first-run-in-15-seconds.md).
"""

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar, cast

import numba
from llvmlite.binding import Linkage
from numba import _dynfunc, types  # type: ignore[attr-defined]
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import register_pass
from numba.core.typed_passes import InlineOverloads, NativeLowering, NopythonRewrites
from numba.core.untyped_passes import InlineClosureLikes

from tidings._lent import lend

__all__ = [
    "borrowing",
    "borrowing_inner",
    "borrowing_step",
    "compiled",
    "compiled_inline",
    "compiled_kernels",
    "lend",
]

Kernel = TypeVar("Kernel", bound=Callable[..., object])

_IMPORT: Final = re.compile(r"^\s*(?:from|import)\s+([\w.]+)", re.MULTILINE)


def _compile(function: Kernel, *, cache: bool = True, **more: Any) -> Kernel:
    compiler: Any = numba.njit  # its published types leave out some of its options
    return cast(Kernel, compiler(cache=cache, nogil=True, error_model="numpy", **more)(function))


def compiled(function: Kernel) -> Kernel:
    """Compile `function` on its first call for the types it is called with; the type checker sees it unchanged."""
    return _compile(function)


def compiled_inline(function: Kernel) -> Kernel:
    """As `compiled`, for an inner function of a hot loop: its body is put in the place of each call.

    A call, even one that the machine-code optimiser merges later, counts the references of the arrays it passes, which
    costs more than a short body does.
    """
    return _compile(function, inline="always")


def borrowing(function: Kernel) -> Kernel:
    """Compile `function`, which must not allocate, for calls from Python; for those from kernels it is an inner one."""
    kernel: Any = _compile(function, _nrt=False, no_cfunc_wrapper=True, pipeline_class=_OutermostCompiler)
    inner: Any = _inner(function)
    kernel.get_call_template, kernel.get_overload = inner.get_call_template, inner.get_overload
    return cast(Kernel, kernel)


def borrowing_inner(function: Kernel) -> Kernel:
    """As `borrowing`, for calls from other kernels only: it becomes machine code as a part of them."""
    return _inner(function)


def borrowing_step(function: Kernel) -> Kernel:
    """As `borrowing_inner`, for a short function of a hot loop: its machine code is put in the place of each call."""
    return _inner(function, forceinline=True)


def _inner(function: Kernel, **more: bool) -> Kernel:
    options = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "pipeline_class": _InnerCompiler}
    kernel: Any = _compile(function, cache=False, _nrt=False, **options, **more)
    find_call = kernel.get_call_template

    def find_call_without_literals(arguments: Any, named: Any) -> Any:
        plain = {name: types.unliteral(kind) for name, kind in named.items()}
        return find_call(tuple(types.unliteral(kind) for kind in arguments), plain)

    def add_overload(result: Any) -> None:
        """For calls from kernels alone: Python would jump to where there is no code."""
        kernel.overloads[tuple(result.signature.args)] = result

    def refuse(*_: Any, **__: Any) -> None:
        raise TypeError(
            f"{function.__name__} is an inner kernel: call it from kernels only, or compile it as `borrowing`"
        )

    kernel.get_call_template = find_call_without_literals
    kernel.add_overload, kernel._compile_for_args = add_overload, refuse
    return cast(Kernel, kernel)


class _OutermostLibrary(JITCodeLibrary):
    """The machine code of a kernel and of all that it calls.

    Optimised once. The compiler itself does it twice, so that references which nobody needs are found in between; here
    there are none. Loops of many small steps have nothing to vectorise.
    """

    def _optimize_functions(self, module: Any) -> None:
        module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        for function in self._final_module.functions:
            if function.linkage == Linkage.linkonce_odr and not function.is_declaration:
                function.linkage = "internal"
        manager, builder = self._codegen._module_pass_manager(loop_vectorize=False, slp_vectorize=False)
        manager.run(self._final_module, builder)


class _InnerLibrary(JITCodeLibrary):
    """A kernel alone, without those that it calls: the outermost links, optimises and makes machine code of all."""

    def _optimize_functions(self, module: Any) -> None:
        module.data_layout = self._codegen._data_layout

    def finalize(self) -> None:
        self._finalized = True


@register_pass(mutates_CFG=True, analysis_only=False)
class _OutermostLowering(NativeLowering):
    _name = "outermost_lowering"

    def run_pass(self, state: Any) -> bool:
        state.library = _OutermostLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        return bool(super().run_pass(state))


@register_pass(mutates_CFG=True, analysis_only=False)
class _InnerLowering(NativeLowering):
    _name = "inner_lowering"

    def run_pass(self, state: Any) -> bool:
        library = state.library = _InnerLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        state.flags.no_compile = True
        super().run_pass(state)
        lowered = state["cr"]
        # Callers find a kernel by its entry point, also by one that leads nowhere.
        name = lowered.fndesc.qualname.rpartition(".")[2]
        entry = _dynfunc.make_function(lowered.fndesc.lookup_module(), name, name, 0, lowered.env, (library,))
        state.targetctx.insert_user_function(
            entry, lowered.fndesc, dict.fromkeys([library, *library._linking_libraries])
        )
        state["cr"] = lowered._replace(cfunc=entry)
        return True


_NEEDLESS: Final = (NativeLowering, InlineClosureLikes, InlineOverloads, NopythonRewrites)
"""Passes left out: they are about functions within functions and expressions of whole arrays, which allocate."""


class _OutermostCompiler(CompilerBase):
    lowering: ClassVar[type[NativeLowering]] = _OutermostLowering

    def define_pipelines(self) -> list[Any]:
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.add_pass_after(self.lowering, NativeLowering)
        passes.passes = [each for each in passes.passes if each[0] not in _NEEDLESS]
        passes.finalize()
        return [passes]


class _InnerCompiler(_OutermostCompiler):
    lowering = _InnerLowering


def _forget_stale_kernels(package: Path) -> None:
    """Delete the index of every compiled kernel that is older than a source it may be made of."""

    @cache
    def imported(source: Path) -> frozenset[Path]:
        return frozenset(_imported(source, package))

    @cache
    def newest_below(source: Path) -> float:
        seen, waiting = {source}, [source]
        while waiting:
            found = imported(waiting.pop()) - seen
            seen |= found
            waiting += found
        return max(path.stat().st_mtime for path in seen)

    for kernel in package.rglob("__pycache__/*.nbi"):
        source = kernel.parent.parent / f"{kernel.name.partition('.')[0]}.py"
        if not source.exists() or kernel.stat().st_mtime < newest_below(source):
            kernel.unlink(missing_ok=True)


def _imported(source: Path, package: Path) -> Iterator[Path]:
    """The files of the package that a source imports; of a package inside it, all files, whoever of them it asks."""
    for name in _IMPORT.findall(source.read_text("utf-8")):
        top, *inner = name.split(".")
        if top == package.name:
            place = package.joinpath(*inner)
            if inner and place.is_dir():
                yield from place.rglob("*.py")
            elif inner:
                yield place.with_suffix(".py")


def compiled_kernels() -> int:
    """How many kernels are compiled and on disk, beside their sources or where NUMBA_CACHE_DIR says."""
    given = os.environ.get("NUMBA_CACHE_DIR")
    folder = Path(given) if given else Path(__file__).parent
    return sum(1 for _ in folder.rglob("*.nbi"))


def _announce_first_use() -> None:
    """One line for whoever waits at a terminal, where nothing was compiled yet."""
    if sys.stderr.isatty() and os.access(Path(__file__).parent, os.W_OK) and compiled_kernels() == 0:
        print(
            "Compiling kernels at their first use: some minutes, once (`tidings doctor --compile` does it in advance).",
            file=sys.stderr,
        )


with suppress(OSError):  # an installation that may not be written to has nothing stale either
    _forget_stale_kernels(Path(__file__).parent)
    _announce_first_use()
