from tidings import ordering


def test_all_names_exist_and_nothing_else_is_public() -> None:
    assert len(set(ordering.__all__)) == len(ordering.__all__)
    assert all(hasattr(ordering, name) for name in ordering.__all__)
    assert set(dir(ordering)) == set(ordering.__all__)
