"""Reads Rust sources as far as tidiness needs it: what is code, where functions end, what a file imports."""
import bisect
import collections
import pathlib
import re

# Comments, strings and character literals. What is none of them is code; a lifetime has no second quote.
LITERAL = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?\*/)
      | (?<![A-Za-z0-9_])(?:[bc]?r(?P<hashes>\#*)".*?"(?P=hashes))
      | (?<![A-Za-z0-9_])[bc]?"(?:[^"\\]|\\.)*"
      | "(?:[^"\\]|\\.)*"
      | b?'(?:[^'\\\n]|\\(?:x..|u\{[^}]*\}|.))'
    """, re.DOTALL | re.VERBOSE)


class Source:
    """One file: `text` as it is, `code` with blanks for everything else, as long."""

    def __init__(self, path, text=None):
        self.path = pathlib.Path(path)
        self.text = self.path.read_text(encoding="utf-8") if text is None else text
        code, end = [], 0
        for match in LITERAL.finditer(self.text):
            between, literal = self.text[end:match.start()], match.group()
            code += between, blank(literal)
            end = match.end()
        code.append(self.text[end:])
        self.code = "".join(code)
        self.starts = [0] + [match.end() for match in re.finditer("\n", self.text)]

    def line(self, offset):
        return bisect.bisect_right(self.starts, offset)

    def functions(self):
        """(name, first line, number of lines) of each function with a body."""
        for match in re.finditer(r"\bfn\s+(\w+)", self.code):
            opening = body_of(self.code, match.end())
            if opening is not None:
                first, last = self.line(match.start()), self.line(closing(self.code, opening))
                yield match.group(1), first, last - first + 1

    def tables(self):
        """The lines of items that are laid out as tables: `#[rustfmt::skip]`, up to the end of the item."""
        lines = set()
        for match in re.finditer(r"#\[rustfmt::skip\]", self.code):
            end = re.compile(r"^(?:[}\])]+;?|\S.*;)$", re.MULTILINE).search(self.code, self.code.index("\n", match.end()) + 1)
            lines.update(range(self.line(match.start()), self.line(end.start() if end else len(self.code)) + 1))
        return lines

    def without_tests(self):
        """The code, with blanks for `#[cfg(test)]` modules."""
        code = self.code
        for match in re.finditer(r"#\[cfg\(test\)\]\s*(?:pub(?:\([^)]*\))?\s+)?mod\s+\w+\s*([{;])", code):
            end = closing(code, match.start(1)) + 1 if match.group(1) == "{" else match.end()
            code = code[:match.start()] + blank(code[match.start():end]) + code[end:]
        return code


def blank(text):
    return re.sub(r"[^\n]", " ", text)


def body_of(code, at):
    """Where the `{` of a function's body is; None for one that is declared only."""
    depth = 0
    for at in range(at, len(code)):
        char = code[at]
        if char in "([":
            depth += 1
        elif char in ")]":
            depth -= 1
        elif depth == 0 and char == "{":
            return at
        elif depth == 0 and char == ";":
            return None
    return None


def closing(code, opening):
    """Where the brace that is opened there is closed."""
    depth = 0
    for match in re.compile("[{}]").finditer(code, opening):
        depth += 1 if match.group() == "{" else -1
        if depth == 0:
            return match.start()
    return len(code) - 1


class Modules:
    """The files of a crate, and which of them each imports from.

    A path leads to the file of the longest module in it. A file that only hands a name on (`pub use`, also of all names with
    `*`) is none that it is imported from: the path is followed, into each file that has the name under some condition. So a
    `mod.rs` may present its parts, and is in a circle only if they need what it defines itself. Tests are left out.
    """

    def __init__(self, src):
        self.files = {}
        for path in sorted(src.rglob("*.rs")):
            parts = path.relative_to(src).with_suffix("").parts
            if "tests" not in parts:
                self.files[parts[:-1] if parts[-1] in ("lib", "mod") else parts] = Source(path)
        self.codes = {module: source.without_tests() for module, source in self.files.items()}
        self.handed_on = {module: collections.defaultdict(list) for module in self.files}
        for module in self.files:
            for name, path in self.names_handed_on(module):
                self.handed_on[module][name].append(path)

    def names_handed_on(self, module):
        for match in re.finditer(r"\bpub(?:\([^)]*\))?\s+use\s+([^;]+);", self.codes[module]):
            for path, name in leaves(match.group(1)):
                yield name, self.absolute(module, path)

    def absolute(self, module, path):
        """A path as it stands in a file, from the root of the crate; None if it leads out of it."""
        path = list(path)
        if path[0] == "crate":
            return tuple(path[1:])
        base = module
        while path and path[0] in ("self", "super"):
            base = base if path.pop(0) == "self" else base[:-1]
            if not path:
                return base
        if base is not module or (*module, path[0]) in self.files or path[0] != path[0].lower():
            return (*base, *path)
        return None

    def files_of(self, path, seen=()):
        """The modules whose files define what the path names: one, or one for each condition of compilation."""
        module = max((path[:n] for n in range(len(path) + 1) if path[:n] in self.files), key=len)
        name, *rest = path[len(module):] or [None]
        handed_on = self.handed_on[module]
        onward = handed_on[name] if name in handed_on else [
            (*whole[:-1], name) for whole in handed_on.get("*", ()) if whole and self.has(whole[:-1], name)]
        onward = {(*whole, *rest) for whole in onward if whole is not None} - set(seen)
        return {found for whole in onward for found in self.files_of(whole, (*seen, whole))} or {module}

    def has(self, module, name):
        """Whether a module defines a name, or hands it on."""
        defined = rf"\b(?:struct|enum|union|trait|type|fn|const|static|mod)\s+{name}\b"
        return name in self.handed_on.get(module, ()) or bool(re.search(defined, self.codes.get(module, "")))

    def imports(self, module):
        code = self.codes[module]
        uses = [match for match in re.finditer(r"(\bpub(?:\([^)]*\))?\s+)?\buse\s+([^;]+);", code)]
        paths = [path for match in uses if not match.group(1) for path, _ in leaves(match.group(2))]
        for match in uses:
            code = code[:match.start()] + blank(match.group()) + code[match.end():]
        paths += [match.group().split("::") for match in re.finditer(r"\b(?:crate|super|self)(?:::\w+)+", code)]
        for path in paths:
            absolute = self.absolute(module, [part.strip() for part in path])
            if absolute is not None and path[0] in ("crate", "super", "self") or absolute in self.files:
                yield from self.files_of(absolute) - {module}

    def circles(self):
        """Each circle once, as the sorted names of its files: strongly connected parts of more than one."""
        edges = {module: set(self.imports(module)) for module in self.files}
        reach = {}
        for start in edges:
            seen, todo = set(), [start]
            while todo:
                for other in edges[todo.pop()] - seen:
                    seen.add(other)
                    todo.append(other)
            reach[start] = seen
        found = {frozenset(other for other in reach[start] if start in reach[other]) for start in reach if start in reach[start]}
        return sorted(sorted("::".join(("crate", *module)) for module in circle) for circle in found)


def leaves(tree):
    """(path, name) of each leaf of a `use` tree."""
    tree = tree.strip()
    brace = tree.find("{")
    if brace < 0:
        path, _, name = re.sub(r"\s+", " ", tree).partition(" as ")
        parts = path.replace(" ", "").split("::")
        parts = parts if parts[0] else parts[1:]
        yield parts, name.strip() or parts[-1]
        return
    head = [part.strip() for part in tree[:brace].split("::") if part.strip()]
    depth, start = 0, brace + 1
    inner = tree[brace + 1:closing(tree, brace)]
    for at, char in enumerate(inner + ","):
        depth += (char == "{") - (char == "}")
        if char == "," and depth == 0:
            part = inner[start - brace - 1:at].strip()
            start = brace + 1 + at + 1
            if part:
                for path, name in leaves(part):
                    whole = head + path if path != ["self"] else head
                    yield whole, (head[-1] if path == ["self"] and name == "self" else name)
