"""Random commands of a Redis client: of every kind, and with the mistakes that people make. It knows no server.

Two equal servers answer all these commands alike: no clocks, no random members, no order of hash tables.
"""

from support.redis_async_socket import encoded

SCRIPT = "return {KEYS[1], ARGV[1], redis.call('GET', KEYS[1])}"
SHA = "ad4f4d0d5ee1d1d0ea3a1b2c3d4e5f60718293a4"


class RandomCommands:
    """The commands of one client. `step` returns a batch that is sent at once."""

    def __init__(self, chance, number):
        self.chance, self.number = chance, number
        self.in_multi = False
        self.databases = (0, 1, 2)

    def key(self):
        return f"{self.number}:{self.chance.choice('abcdef')}"

    def value(self):
        size = self.chance.choice([0, 1, 5, 20, 20, 20, 300, 5_000, 17_000, 70_000] if self.chance.random() < 0.2 else [1, 5, 20])
        return bytes(self.chance.choice(b"\r\n\0$*ab 12") for _ in range(min(size, 40))) * max(1, size // 40)

    def ordinary(self):
        c, key, value = self.chance, self.key(), self.value()
        return c.choice([
            ("SET", key, value), ("GET", key), ("GETSET", key, value), ("APPEND", key, value), ("STRLEN", key), ("INCR", key),
            ("DEL", key), ("EXISTS", key, self.key()), ("TYPE", key), ("RPUSH", key, value, "x"), ("LRANGE", key, 0, -1), ("LPOP", key),
            ("HSET", key, "f", value), ("HGET", key, "f"), ("HGETALL", key), ("SADD", key, "only"), ("SMEMBERS", key),
            ("ZADD", key, 1.5, "m"), ("ZRANGE", key, 0, -1, "WITHSCORES"), ("ZSCORE", key, "m"), ("MSET", key, value, self.key(), "2"),
            ("MGET", key, self.key(), "nothing"), ("PING",), ("ECHO", value), ("XADD", key, c.randrange(1, 10**9), "f", value),
            ("XRANGE", key, "-", "+"), ("EVAL", SCRIPT, 1, key, value), ("EVALSHA", SHA, 1, key, value), ("SCRIPT", "EXISTS", SHA),
            ("EVAL", "return redis.error_reply('MINE of my own')", 0), ("GEOADD", key, 13.3, 38.1, "here"), ("SETBIT", key, 100, 1),
            ("OBJECT", "ENCODING", key), ("SETEX", key, 10_000, value), ("PERSIST", key), ("RENAME", key, self.key()), ("LPOS", key, "x"),
            ("WAIT", 0, 10), ("DBSIZE", "too much"), ("CLIENT", "GETREDIR"),
        ])

    def mistake(self):
        return self.chance.choice([
            ("NOSUCH", "a"), ("GET",), ("SET", self.key()), ("INCRBY", self.key(), "x"), ("EXEC",), ("DISCARD",), ("HELLO", "4"), ("HELLO", "x"),
            ("SELECT", "x"), ("SELECT", "-1"), ("SELECT", "99"), ("SELECT",), ("CLIENT", "SETNAME", "a b"), ("CLIENT", "SETNAME"), ("",),
            ("CLIENT", "NOSUCH"), ("MULTI", "x"), ("WATCH",), ("EXEC", "x"), ("UNWATCH", "x"), ("HELLO", "3", "SETNAME"), ("AUTH", "x", "y", "z"),
        ])

    def session(self):
        return self.chance.choice([
            ("SELECT", self.chance.choice(self.databases)), ("HELLO", self.chance.choice([2, 3])), ("CLIENT", "SETNAME", f"n{self.number}"),
            ("CLIENT", "GETNAME"), ("HELLO", 3, "SETNAME", "hello"), ("HELLO",), ("RESET",),
        ])

    def transaction(self):
        return self.chance.choice([("MULTI",), ("MULTI",), ("EXEC",), ("EXEC",), ("DISCARD",), ("WATCH", self.key()), ("UNWATCH",)])

    def blocking(self):
        return self.chance.choice([
            ("BLPOP", self.key(), 0.01), ("BRPOP", self.key(), self.key(), 0.01), ("BLMOVE", self.key(), self.key(), "LEFT", "RIGHT", 0.01),
            ("XREAD", "COUNT", 1, "BLOCK", 5, "STREAMS", self.key(), "$"), ("BZPOPMIN", self.key(), 0.01),
        ])

    def command(self):
        kind = self.chance.choices([self.ordinary, self.mistake, self.session, self.transaction, self.blocking], [70, 6, 8, 14, 1])[0]
        return kind()

    def step(self):
        """Commands, and their bytes. Sometimes a command is sent as an inline command."""
        commands = [self.command() for _ in range(self.chance.choice([1, 1, 1, 2, 3, 10]))]
        data = b""
        for command in commands:
            words = [str(word) for word in command if not isinstance(word, bytes)]
            plain = len(words) == len(command) and all(word and word.isascii() and not set(word) & set(" \"'") for word in words)
            data += " ".join(words).encode() + b"\r\n" if plain and self.chance.random() < 0.1 else encoded(command)
        return commands, data


class RandomSubscriptions:
    """A client that subscribes: its next commands, and the number of their replies. It remembers its subscriptions."""

    def __init__(self, chance, number):
        self.chance, self.number, self.version = chance, number, 2
        # The channels of this client alone: the order of what others publish and of what it reads is undefined.
        self.key = f"subscriber:{number}"
        self.has = {"": set(), "P": set(), "S": set()}

    def name(self, kind):
        """Some channels of its own and some that all clients share, so that subscriptions begin and end with others and
        alone."""
        whose = self.chance.choice([self.number, "all"])
        return f"{whose}:{self.chance.choice(['*', 'a*', '[ab]'] if kind == 'P' else 'abc')}"

    def subscription(self):
        """A command and the number of its replies: one for each name, or one for each subscription that ends."""
        kind, begins = self.chance.choice(["", "", "P", "S"]), self.chance.random() < 0.6
        count = self.chance.choice([1, 1, 2, 3]) if begins else self.chance.choice([0, 1, 1, 2])
        names, has = [self.name(kind) for _ in range(count)], self.has[kind]
        replies = count or max(1, len(has))
        if begins:
            has.update(names)
        else:
            has.difference_update(names or set(has))
        return (f"{kind}{'' if begins else 'UN'}SUBSCRIBE", *names), replies

    def command(self):
        roll = self.chance.random()
        if roll < 0.55:
            return self.subscription()
        if roll < 0.62:
            self.version, self.has = 2, {"": set(), "P": set(), "S": set()}
            return ("RESET",), 1
        if roll < 0.72:
            version = self.chance.choice([2, 3])
            if self.version == 3 or not any(self.has.values()):
                self.version = version
            return ("HELLO", version), 1
        return self.chance.choice([
            ("PING",), ("PING", "x"), ("PING", "x", "y"), ("GET", self.key), ("SET", self.key, self.number), ("SUBSCRIBE",), ("PSUBSCRIBE",), ("config", "GET", "maxclients"),
            ("SELECT", self.chance.choice([0, 1])), ("CLIENT", "SETNAME", "x"), ("ECHO", "x"), ("LRANGE", "l", 0, -1), ("GET",)] if self.version == 3 else [
            ("PING",), ("PING", "x"), ("PING", "x", "y"), ("GET", self.key), ("SUBSCRIBE",), ("config", "GET", "maxclients"), ("SELECT", 1), ("CLIENT", "SETNAME", "x"), ("ECHO", "x")]), 1
