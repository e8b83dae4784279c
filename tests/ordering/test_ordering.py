from tidings import ordering


def test_all_names_exist_and_nothing_else_is_public() -> None:
    assert len(set(ordering.__all__)) == len(ordering.__all__)
    public = {name for name in vars(ordering) if not name.startswith("_")}
    assert public == set(ordering.__all__)
