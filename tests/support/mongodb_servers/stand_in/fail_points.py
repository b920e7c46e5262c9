"""`configureFailPoint`, of which drivers' tests use `failCommand`: it makes a member fail commands on purpose. Each
member has its own.
"""

import asyncio
import dataclasses

from errors import error


class Ends(Exception):
    """The connection is closed without an answer."""


@dataclasses.dataclass
class FailCommand:
    """What happens to commands with these names."""

    data: dict
    # How many commands succeed first, and how many fail then; `None` is all.
    skip: int
    times: int | None


class FailPoints:
    """The fail points of a member."""

    def __init__(self):
        self.active = None

    def configure(self, command):
        name, mode = command["configureFailPoint"], command.get("mode")
        if name != "failCommand":
            return error(59, f"fail point not found: {name}")
        if mode == "off":
            self.active = None
        else:
            counts = {} if mode == "alwaysOn" else dict(mode)
            self.active = FailCommand(dict(command.get("data", {})), counts.get("skip", 0), counts.get("times"))
        return {"ok": 1.0}

    def fires(self, name, app):
        """What happens to a command of this name from an application of this name."""
        active = self.active
        if active is None or name not in active.data.get("failCommands", []) or active.data.get("appName", app) != app:
            return None
        if active.skip > 0:
            active.skip -= 1
            return None
        if active.times is not None:
            if active.times <= 0:
                return None
            active.times -= 1
        return active.data


async def before(data):
    """The answer in place of executing a command; `None` if it is executed."""
    if data.get("blockConnection"):
        await asyncio.sleep(data.get("blockTimeMS", 0) / 1000)
    if data.get("closeConnection"):
        raise Ends
    if data.get("errorCode") is not None:
        told = error(data["errorCode"], "Failing command via 'failCommand' failpoint")
        return told | ({"errorLabels": data["errorLabels"]} if "errorLabels" in data else {})
    return None


def behind(data, answer):
    """Changes the answer to a command that was executed."""
    if "writeConcernError" not in data or not answer.get("ok"):
        return answer
    told = answer | {"writeConcernError": data["writeConcernError"]}
    return told | ({"errorLabels": data["errorLabels"]} if "errorLabels" in data else {})
