"""Makes C functions of random structure: declarations, nested loops, branches, switches, calls, arithmetic.

Their results are defined by the C standard: unsigned arithmetic only, odd divisors, masked shifts and subscripts,
bounded loops, no variable read before it is set. So no compiler may change a result; the tests check that.
"""

from __future__ import annotations

from . import Draw

_OPERATORS = ("+", "-", "*", "^", "|", "&")
_COMPARISONS = ("<", ">", "==", "!=", "<=", ">=")
_DEEPEST = 3
_NESTED = 2


class Functions:
    """A family of functions ``PREFIX_f0`` … of which later ones call earlier ones."""

    def __init__(self, draw: Draw, prefix: str) -> None:
        self._draw, self._prefix = draw, prefix
        self._arity: list[int] = []
        self._variables: list[str] = []
        self._loops = 0

    def make(self, count: int) -> str:
        """``count`` functions, and ``PREFIX_run`` that calls each of them."""
        functions = [self._function(number) for number in range(count)]
        calls = "\n".join(
            f"    sum = sum * 33u ^ {self._prefix}_f{number}({', '.join(['next_u32(&seed)'] * arity)});"
            for number, arity in enumerate(self._arity)
            if arity == 1  # a compiler may evaluate several arguments in any order
        )
        run = f"static u32 {self._prefix}_run(u32 seed)\n{{\n    u32 sum = seed;\n{calls}\n    return sum;\n}}\n"
        return "\n".join([*functions, run])

    def _function(self, number: int) -> str:
        draw = self._draw
        arity = 1 if number % 2 else draw.between(2, 4)
        parameters = [f"a{place}" for place in range(arity)]
        self._variables = list(parameters)
        self._loops = 0
        lines = [f"    u32 t[16] = {{{', '.join(str(draw.below(1 << 16)) + 'u' for _ in range(16))}}};"]
        for place in range(draw.between(2, 4)):
            lines.append(f"    u32 v{place} = {self._expression(1)};")
            self._variables.append(f"v{place}")
        for _ in range(draw.between(4, 8)):
            lines += self._statement(1, number)
        lines.append(f"    return {self._expression(1)};")
        self._arity.append(arity)
        head = f"static u32 {self._prefix}_f{number}({', '.join(f'u32 {name}' for name in parameters)})"
        return "\n".join([head, "{", *lines, "}", ""])

    # -- statements -----------------------------------------------------------------------------------------------

    def _statement(self, depth: int, number: int) -> list[str]:
        choice = self._draw.below(10)
        if depth >= _DEEPEST or choice < 4:
            return ["    " * depth + self._assignment(number)]
        if choice < 6:
            return self._branch(depth, number)
        if choice < 9:
            return self._loop(depth, number)
        return self._switch(depth, number)

    def _assignment(self, number: int) -> str:
        draw = self._draw
        if draw.chance(25):
            return f"t[{self._expression(2)} & 15u] {draw.one(('=', '+=', '^='))} {self._expression(1)};"
        target = draw.one([name for name in self._variables if not name.startswith("i")])
        if number and draw.chance(20):
            called = draw.below(number)
            arguments = ", ".join(self._expression(2) for _ in range(self._arity[called]))
            return f"{target} ^= {self._prefix}_f{called}({arguments}) >> {draw.between(1, 9)};"
        return f"{target} {draw.one(('=', '+=', '-=', '^='))} {self._expression(1)};"

    def _block(self, depth: int, number: int) -> list[str]:
        return [line for _ in range(self._draw.between(1, 3)) for line in self._statement(depth + 1, number)]

    def _branch(self, depth: int, number: int) -> list[str]:
        pad = "    " * depth
        lines = [f"{pad}if ({self._condition()}) {{", *self._block(depth, number)]
        if self._draw.chance(50):
            lines += [f"{pad}}} else {{", *self._block(depth, number)]
        return [*lines, f"{pad}}}"]

    def _loop(self, depth: int, number: int) -> list[str]:
        pad, index = "    " * depth, f"i{self._loops}"
        self._loops += 1
        # Calls inside loops would multiply through the family, so loops have no calls.
        self._variables.append(index)
        body = [line for _ in range(self._draw.between(1, 3)) for line in self._statement(depth + 1, 0)]
        self._variables.remove(index)
        bound = f"{self._draw.between(2, 12)}u"
        head = f"for (u32 {index} = 0; {index} < {bound}; {index}++)"
        if self._draw.chance(30):
            body.append(f"{pad}    if ({self._condition()})\n{pad}        break;")
        return [f"{pad}{head} {{", *body, f"{pad}}}"]

    def _switch(self, depth: int, number: int) -> list[str]:
        pad, cases = "    " * depth, self._draw.between(3, 6)
        lines = [f"{pad}switch (({self._expression(2)}) % {cases + 1}u) {{"]
        for case in range(cases):
            lines += [f"{pad}case {case}:", *self._block(depth, number), f"{pad}    break;"]
        return [*lines, f"{pad}default:", f"{pad}    {self._assignment(0)}", f"{pad}}}"]

    # -- expressions ----------------------------------------------------------------------------------------------

    def _condition(self) -> str:
        return f"({self._expression(2)}) {self._draw.one(_COMPARISONS)} ({self._expression(2)})"

    def _expression(self, depth: int) -> str:
        draw = self._draw
        choice = draw.below(12)
        if depth > _NESTED or choice < 3:
            return self._atom()
        left = self._expression(depth + 1)
        if choice < 8:
            return f"({left} {draw.one(_OPERATORS)} {self._expression(depth + 1)})"
        if choice == 8:
            return f"({left} {draw.one(('/', '%'))} ({self._expression(depth + 1)} | 1u))"
        if choice == 9:
            return f"({left} {draw.one(('<<', '>>'))} ({self._atom()} & 31u))"
        if choice == 10:
            return f"({self._condition()} ? {left} : {self._expression(depth + 1)})"
        return f"t[{left} & 15u]"

    def _atom(self) -> str:
        if self._draw.chance(70):
            return self._draw.one(self._variables)
        return f"{self._draw.below(1 << self._draw.between(2, 31))}u"
