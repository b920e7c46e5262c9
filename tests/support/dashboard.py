"""What the admin address's page shows in a browser. Knows no test."""


def cells(browser, table, heads):
    """The rows of a table, as dicts of these columns."""
    return browser.run(f"""[...document.querySelectorAll('#{table} tbody tr')].map(row => Object.fromEntries(
        [...document.querySelectorAll('#{table} th')].map((head, i) => [head.textContent, row.cells[i]?.textContent])
            .filter(([head]) => {heads}.includes(head))))""")


def tile(browser, name):
    """Its value; a dash before the first look, too."""
    return browser.run(f"[...document.querySelectorAll('.tile')].find(tile => tile.querySelector('dt').textContent === \"{name}\")?.querySelector('.value').textContent ?? '–'")


def state(browser):
    return browser.run("document.getElementById('state').textContent")
