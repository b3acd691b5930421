"""No false good, over simulated answers of known ids through every habit and fault."""

from benchmarks.truth import Tally, find_broken, run, write_table


def test_good_rows_have_the_sampled_ids_whatever_the_host_does() -> None:
    assert_kept(run(rows=1_500, drift=0.0001, processes=2))


def assert_kept(tallies: dict[str, Tally]) -> None:
    """Nothing may be wrong but what drifted unseen and said so."""
    assert find_broken(tallies) == [], write_table(tallies)
    assert all(tallies[name].good.keys() >= {"A1"} for name in tallies if "server ids" in name)
    assert set(tallies["logprobs"].good) == {"A2"}
    assert not any(tallies[name].good["A3"] for name in tallies if "replayed" in name)
