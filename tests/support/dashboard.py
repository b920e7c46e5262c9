"""Reads the admin page in a browser. It knows no test."""


def cells(browser, table, heads):
    """The rows of a table, as dicts of these columns."""
    return browser.run(f"""[...document.querySelectorAll('#{table} tbody tr')].map(row => Object.fromEntries(
        [...document.querySelectorAll('#{table} th')].map((head, i) => [head.textContent, row.cells[i]?.textContent])
            .filter(([head]) => {heads}.includes(head))))""")


def tile(browser, name):
    """The text of a tile. Before the first look it is a dash."""
    return browser.run(f"[...document.querySelectorAll('.tile')].find(tile => tile.querySelector('dt').textContent === \"{name}\")?.querySelector('.value').textContent ?? '–'")


def state(browser):
    return browser.run("document.getElementById('state').textContent")
