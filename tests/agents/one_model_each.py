"""Each of LangChain's standard tests runs with one of the two models of langchain_test.py."""


def pytest_collection_modifyitems(config, items):
    def runs(item):
        kind, name = getattr(item, "cls", None), getattr(item, "originalname", item.name)
        if kind is None or kind.__name__ not in ("TestDefaultModel", "TestScriptedModel"):
            return True
        return (kind.__name__ == "TestScriptedModel") == (name in item.module.SAYS)

    left_out = [item for item in items if not runs(item)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if runs(item)]
