"""Deaths of a cluster's workers, counted at the job that each did."""

from whatwhere.run.deaths import Deaths


def test_a_death_counts_at_the_last_job_alone():
    """A shard that was done and waited behind another counted as what its worker did when it died."""
    deaths = Deaths(None, {})
    deaths.record_begin(1, "a")
    deaths.record_begin(2, "b")
    deaths.record_begin(3, "a")
    deaths.record_loss("a")
    assert [deaths.last_worker(number) for number in (1, 2, 3)] == ["", "", "a"]
    assert deaths.is_busy("b")


def test_death_counts_once_at_a_job():
    """A worker that was started again at the same address, and died before any job, counted at the former one's job."""
    deaths = Deaths(None, {})
    deaths.record_begin(1, "a")
    deaths.record_loss("a")
    deaths.record_loss("a")
    assert deaths.find_causes(1).total() == 1 and not deaths.is_busy("a")
