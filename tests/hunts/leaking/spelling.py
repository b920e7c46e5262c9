"""The many ways to write one and the same thing in SQL: identifiers, strings, the space between words, texts around a
statement. What is written means the same to PostgreSQL each time (with standard_conforming_strings on, unless said).
Knows no statement.
"""

# Characters that start or end something to who reads carelessly.
NOISE = ("'", '"', "$$", "--", ";", "/*x*/", "\\", "select", "set x = 1", "$1", "")


class Speller:
    """Chooses with the random source it is given; `plain` chooses the plainest way every time."""

    def __init__(self, chance, plain=False):
        self.chance, self.plain = chance, plain

    def some(self, *ways):
        return ways[0] if self.plain else self.chance.choice(ways)

    def space(self):
        """Between two words."""
        noise = self.some(*NOISE)
        return self.some(" ", " ", "  ", "\n", "\t", "\r\n", "\f", " /* */ ", "/* /* nested */ */", f" /* {noise.replace('*/', '').replace('/*', '')} */ ",
                         f" -- {noise}\n", "\n-- '\n", "-- '\r")

    def gap(self):
        """Where no space is needed."""
        return self.some("", "", self.space())

    def words(self, text):
        """Keywords, in any case, with any space."""
        return self.space().join(self.some(word, word.lower(), word.upper(), word.capitalize()) for word in text.split())

    def identifier(self, name):
        """`name` is what it means; lower case words without quotes are no keywords."""
        simple = name.isascii() and name.replace("_", "a").isalnum() and name == name.lower() and not name[0].isdigit()
        quoted = '"' + name.replace('"', '""') + '"'
        ways = [quoted, quoted, self.unicode(name, '"')]
        if simple:
            ways = [name, name.upper(), name.title(), *ways]
        return self.some(*ways)

    def qualified(self, *names):
        return (self.gap() + "." + self.gap()).join(self.identifier(name) for name in names)

    def unicode(self, value, quote):
        """U&'...' or U&"...", some characters as numbers, with another escape character now and then."""
        mark = self.some("\\", "\\", "!", "#")
        out = []
        for char in value:
            if char == mark or self.chance.random() < 0.4:
                out.append(f"{mark}{ord(char):04x}" if self.chance.random() < 0.7 else f"{mark}+{ord(char):06X}")
            else:
                out.append(char * 2 if char == quote else char)
        end = "" if mark == "\\" else f"{self.space()}UESCAPE{self.space()}'{mark}'"
        return f"{self.some('U', 'u')}&{quote}{''.join(out)}{quote}{end}"

    def escaped(self, value):
        """E'...', some characters as numbers."""
        out = []
        for char in value:
            ways = ["\\" + char if char in "'\\" else char]
            if char == "'":
                ways.append("''")
            if self.chance.random() < 0.4:
                ways = [f"\\u{ord(char):04x}", f"\\U{ord(char):08X}"]
                if char.isascii():
                    ways += [f"\\x{ord(char):02x}", f"\\{ord(char):03o}"]
            out.append(self.some(*ways))
        return f"{self.some('E', 'e')}'{''.join(out)}'"

    def quoted(self, value):
        return "'" + value.replace("'", "''") + "'"

    def dollar(self, value):
        for tag in self.chance.sample(["", "a", "tag_1", "É", "set"], 5):
            if f"${tag}" not in value and not value.endswith("$"):
                return f"${tag}${value}${tag}$"
        return self.quoted(value)

    def continued(self, value):
        """A string in two pieces with a line end between them; in the second the kind of the first goes on."""
        at = self.chance.randrange(len(value) + 1)
        between = self.some("\n", "\n", "\r", " \n ", "\n-- '\n", " -- x\n", "\f\n", "\n\n")
        first, second = self.quoted(value[:at]), self.quoted(value[at:])
        if self.chance.random() < 0.5:
            first, second = self.escaped(value[:at]), self.escaped(value[at:])[1:]
        return first + between + second

    def string(self, value):
        """A literal; what it means is `value`."""
        return self.some(self.quoted(value), self.quoted(value), self.escaped(value), self.unicode(value, "'"), self.dollar(value),
                         self.continued(value), f"N{self.quoted(value)}")

    def expression(self, value):
        """Of type text, not only a literal."""
        at = self.chance.randrange(len(value) + 1)
        return self.some(self.string(value), f"{self.string(value[:at])}{self.gap()}||{self.gap()}{self.string(value[at:])}", f"({self.string(value)})",
                         f"{self.string(value)}::text", f"CAST({self.string(value)} AS text)", f"lower({self.string(value)})" if value == value.lower() else self.string(value),
                         f"(SELECT {self.string(value)})", f"reverse({self.string(value[::-1])})", f"coalesce(NULL, {self.string(value)})")

    def trap(self):
        """A statement without effect whose strings and comments mislead who does not read exactly as PostgreSQL does.
        """
        return self.some(
            "select 'O''Brien'", r"select E'O\'Brien'", r"select 'back\', 1", "select E'a'\n'b\\''", "select $$ ' $$", "select $a$ $$ ' $a$", "select 1 as \"it's\"",
            "select /* ' */ 1", "select 1 -- '\n", "select /* /* */ ' */ 1", "select U&'\\0027'", 'select 1 as U&"\\0022"', "select 1 as a$b$c", r"select e'\\'",
            "select 'a'\n'b'", "select B'1', X'1F'", "select 1 as set", 'select 1 as """"', "select E'a' -- '\n 'b\\''", r"select n'\'",
            "select U&'a!0027' uescape '!'", "select 1; ; select 2", "select 2 */* ' */ 3", "select 1 as é$a$", "select 1 as x1$a$", "select 1 -- x\r", "select 5 +/*'*/-- '\n 4",
            "select 'a'::text -- $$\n", "select 1.5e3, .5, 1.", "select e'\\x27'", "select $é$ ' $é$", "select array[1]['1'::int]")

    def beside(self, statement):
        """The statement in a text with others."""
        if self.plain or self.chance.random() < 0.5:
            return statement
        before = [self.trap() for _ in range(self.chance.randrange(1, 3))]
        after = [self.trap() for _ in range(self.chance.randrange(2))]
        return (self.gap() + ";" + self.gap()).join([*before, statement, *after])

    def padded(self, statement, size):
        """With a comment or a string of this many bytes before it."""
        filling = "x" * max(0, size - len(statement))
        return self.some(f"/*{filling}*/{statement}", f"select length('{filling}'); {statement}", f"--{filling}\n{statement}", f"{statement} /*{filling}*/")
