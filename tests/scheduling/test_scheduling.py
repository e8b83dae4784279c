from tidings import scheduling


def test_all_names_exist_and_are_sorted_as_listed() -> None:
    assert len(set(scheduling.__all__)) == len(scheduling.__all__)
    for name in scheduling.__all__:
        assert hasattr(scheduling, name)
    assert dir(scheduling) == sorted(scheduling.__all__)
