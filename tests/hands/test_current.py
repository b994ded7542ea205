import pytest

from wolfpack.context import current
from wolfpack.errors import CallerError


def test_outside_a_task_it_says_where_it_can_be_used():
    with pytest.raises(CallerError, match="outside a task"):
        current()
