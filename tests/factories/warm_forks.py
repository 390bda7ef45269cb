"""Fork server for the workers of one `dask worker --preload-nanny`: it imports once what each would import again."""

import multiprocessing
from multiprocessing import forkserver

MODULES = ["distributed", "whatwhere.study.model_task", "whatwhere.report", "pandas"]

multiprocessing.get_context("forkserver").set_forkserver_preload(MODULES)
forkserver.ensure_running()
