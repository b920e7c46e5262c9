"""Values that sessions set, as SQL literals. It does not know how they are sent."""

# Setting -> SQL literals that SET accepts. Only those of read_only make a statement fail.
SETTINGS = {
    "search_path": ["s1", "s2, public", "s1, s2", '"$user", public', "''", "pg_catalog, s2", '"S3 odd", public', "public"],
    "client_min_messages": ["warning", "error", "notice", "'warning'"],
    "statement_timeout": ["'5min'", "120000", "'90s'", "0"],
    "lock_timeout": ["'4min'", "0"],
    "idle_in_transaction_session_timeout": ["'10min'", "0"],
    "work_mem": ["'8MB'", "16384", "'64MB'"],
    "DateStyle": ["'ISO'", "SQL, DMY", "'German'", "'Postgres, MDY'", "MDY", "'ISO, YMD'", "dmy"],
    "IntervalStyle": ["iso_8601", "postgres", "'sql_standard'"],
    "TimeZone": ["'UTC'", "'Europe/Berlin'", "'Asia/Tokyo'", "-5", "'America/St_Johns'"],
    "extra_float_digits": ["3", "0", "-2"],
    "bytea_output": ["escape", "'hex'"],
    "client_encoding": ["'LATIN1'", "UTF8", "'utf-8'", "SQL_ASCII"],
    "application_name": ["'one'", "'two words'", "'o''clock'", "''", "plain"],
    "default_transaction_isolation": ["'repeatable read'", "'read committed'"],
    "default_transaction_read_only": ["off", "on", "false", "off"],
    "default_transaction_deferrable": ["on", "off"],
    "enable_seqscan": ["off", "on", "no"],
    "jit": ["off", "on"],
    "random_page_cost": ["1.1", "4"],
    "row_security": ["off", "on"],
    "xmloption": ["document", "content"],
    "synchronous_commit": ["off", "local", "on"],
    "plan_cache_mode": ["force_custom_plan", "auto", "force_generic_plan"],
    "app.tenant": ["'42'", "'a b'", "''", "'x''y'", "tenant_7", "7"],
    "app.user": ["'ann'", "'bob'", "'-- no comment'", "'semi;colon'"],
    "app.depth": ["1", "2.5", "-3"],
}

# What SET refuses, each for another reason.
BAD = ["statement_timeout = 'rubbish'", "nosuch_setting = 1", "max_connections = 5", "deadlock_timeout = '3s'",
       "client_encoding = 'KLINGON'", "TimeZone = 'Nowhere/Atall'", "work_mem = -7", "search_path", "role = 'nobody_at_all'"]

# Strings whose meaning depends on standard_conforming_strings, or that are easy to misread.
STRINGS = [r"E'back\\slash'", r"E'quo\'te'", "'plain'", "U&'\\0041bc'", "$$dollar$$", "'two'\n  'lines'", "E'semi;colon'"]


def unquoted(literal):
    """The value of a literal of SETTINGS, to be sent as a parameter."""
    if literal.startswith("'"):
        return literal[1:-1].replace("''", "'")
    return literal
