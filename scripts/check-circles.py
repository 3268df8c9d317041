#!/usr/bin/env python3
"""No modules at the top level of a crate use each other in a circle: says which do, and fails.

A module is a file beside lib.rs together with the folder of its name. It uses another one by a path
that begins in the crate (`crate::name`, `super::name`), or by what lib.rs hands on from there. Code
that is compiled for tests alone does not count. With --uses it prints who uses whom in each circle.
"""

import pathlib
import re
import sys


def without_tests(code: str) -> str:
    """Code without comments, and without what stands behind #[cfg(test)]."""
    code = re.sub(r"//.*", "", code)
    while begin := re.search(r"#\[cfg\((all\()?(test|loom)\b[^\]]*\]", code):
        end, depth = begin.end(), 0
        while end < len(code):
            depth += {"{": 1, "}": -1}.get(code[end], 0)
            end += 1
            if depth == 0 and code[end - 1] in "};":
                break
        code = code[: begin.start()] + code[end:]
    return code


def leaves(path: str) -> list[list[str]]:
    """The paths of a use declaration, each as its parts: `a::{b, c as d}` gives a b, a c."""
    head, brace, rest = path.partition("{")
    begin = [part for part in re.sub(r"\s+as\s+\w+", "", head).strip().split("::") if part]
    if not brace:
        return [begin] if begin else []
    found, depth, item = [], 0, ""
    for letter in rest.rstrip().removesuffix("}") + ",":
        depth += {"{": 1, "}": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            found += [begin + leaf for leaf in leaves(item)]
            item = ""
        else:
            item += letter
    return found


def files_of(source: pathlib.Path) -> dict[str, list[pathlib.Path]]:
    """The files of each module at the top level, but those that are compiled for tests alone."""
    modules = {}
    for path in source.rglob("*.rs"):
        inside = path.relative_to(source)
        if inside.parts[0] == "bin" or str(inside) in ("lib.rs", "main.rs"):
            continue
        parent = path.parent.with_suffix(".rs")
        if path.name == "mod.rs":
            parent = path.parent.parent.with_suffix(".rs")
        elif (path.parent / "mod.rs").exists():
            parent = path.parent / "mod.rs"
        above = parent if parent.exists() else source / "lib.rs"
        declared = rf"\bmod {path.parent.name if path.name == 'mod.rs' else path.stem};"
        if above.exists():
            code = re.sub(r"//.*", "", above.read_text())
            if re.search(declared, code) and not re.search(declared, without_tests(code)):
                continue
        if re.search(r"tests?$", path.stem):
            continue
        modules.setdefault(inside.parts[0].removesuffix(".rs"), []).append(path)
    return modules


def uses(source: pathlib.Path) -> dict[str, set[str]]:
    """Which modules each module uses."""
    modules = files_of(source)
    handed_on = {}
    library = source / "lib.rs"
    if library.exists():
        for declaration in re.findall(r"\buse ([^;]+);", without_tests(library.read_text())):
            for parts in leaves(re.sub(r"^(crate|self)::", "", declaration)):
                if parts[0] in modules:
                    handed_on[parts[-1]] = parts[0]
    edges = {module: set() for module in modules}
    for module, paths in modules.items():
        for path in paths:
            code = without_tests(path.read_text())
            depth = len(path.relative_to(source).parts) - (path.name == "mod.rs")
            up = "super::" * depth
            for begin in re.finditer(rf"(?<![\w:])(?:\$?crate::|{up}(?!super))", code):
                rest = code[begin.end() :]
                if rest.startswith("{"):
                    paths_named = leaves(rest.partition(";")[0])
                else:
                    paths_named = [[re.match(r"\w*", rest).group()]]
                for parts in paths_named:
                    used = parts[0] if parts[0] in modules else handed_on.get(parts[0])
                    if used and used != module:
                        edges[module].add(used)
    return edges


def circles(edges: dict[str, set[str]]) -> list[list[str]]:
    """The modules that reach each other, in groups."""

    def reached(module: str) -> set[str]:
        seen, todo = set(), [module]
        while todo:
            new = edges[todo.pop()] - seen
            seen |= new
            todo += new
        return seen

    reach = {module: reached(module) for module in edges}
    groups = {tuple(sorted(other for other in reach[module] if module in reach[other])) for module in reach}
    return sorted([list(group) for group in groups if len(group) > 1])


def main() -> int:
    failed = 0
    crates = pathlib.Path(__file__).resolve().parent.parent / "crates"
    for source in sorted(crates.glob("*/src")):
        crate = source.parent.name
        edges = uses(source)
        found = circles(edges)
        if "--uses" in sys.argv:
            for circle in found:
                print(f"{crate}:")
                for module in circle:
                    print(f"  {module} uses {', '.join(sorted(edges[module] & set(circle)))}")
        for circle in found:
            failed = 1
            print(f"crates/{crate}/src: these use each other in a circle: {', '.join(circle)}", file=sys.stderr)
    return failed


if __name__ == "__main__":
    sys.exit(main())
