"""What changes how a text or a constant is read, or what may be seen of the settings, for a moment only, deceives nobody."""

import pytest

import wire as w
from leaking import look, world
from leaking.fixtures import removed, share  # noqa: F401
from leaking.sharing import strictly

pytestmark = pytest.mark.poolhouse_only


@pytest.mark.parametrize("act", [
    "SELECT query_to_xml('SELECT set_config(''app.tenant'', ''evil'', false)', true, true, '')",
    "SELECT ts_stat('SELECT to_tsvector(set_config(''app.tenant'', ''evil'', false))')",
])
@pytest.mark.parametrize("on_session_state", ["replay", "pin", "reject"])
def test_what_a_text_does_that_a_function_is_given_is_met_by_nobody(share, on_session_state, act):
    share(on_session_state=on_session_state).nobody_meets(strictly(act))
