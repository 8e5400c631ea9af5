package main

// mutants are the guards, in the order of docs/reliability.md.
var mutants = []mutant{
	{
		guard: "owner check in release", file: "redisbackend/scripts/release.lua",
		edits: []edit{{
			old: "local holds = value and string.sub(value, 1, #mine) == mine",
			new: "local holds = value",
		}},
		pkg: "redisbackend", test: "ReleaseIsOwnerChecked",
	},
	{
		guard: "owner check in renew", file: "redisbackend/scripts/renew.lua",
		edits: []edit{{
			old: "local held = type(value) == 'string' and string.sub(value, 1, #mine) == mine",
			new: "local held = type(value) == 'string'",
		}},
		pkg: "redisbackend", test: "RenewIsOwnerChecked",
	},
	{
		guard: "deadline from sending", file: "acquire.go",
		edits: []edit{{
			old: "h.grant, h.term, h.start, h.granted = grant, grant.Term, now, now",
			new: "h.grant, h.term, h.start, h.granted = grant, backend.Term{Sent: now, TTL: grant.Term.TTL}, now, now",
		}},
		pkg: "redisbackend", test: "DeadlineCountsFromSending",
	},
	{
		guard: "clean-up after a cancelled acquire", file: "release.go",
		edits: []edit{{
			old: "if !queued && !h.attempted {",
			new: "if true || queued {",
		}},
		pkg: "redisbackend", test: "CancelledAcquireIsUndone",
	},
	{
		guard: "re-check after subscribe", file: "redisbackend/wait.go",
		edits: []edit{{
			old: "\t\tt.subscribed = true\n\t\tt.news()\n",
			new: "\t\tt.subscribed = true\n",
		}},
		pkg: "redisbackend", test: "ReleaseDuringWaitIsNotMissed",
	},
	{
		guard: "atomic fence", file: "redisbackend/driver.go",
		edits: []edit{{
			old: "\t\tfence, err := parseFence(text)\n",
			new: "\t\tfence, err := parseFence(text)\n\t\tfence = uint64(time.Since(p.sent)) // drawn by each client for itself\n",
		}},
		pkg: "redisbackend", test: "FenceIncreasesAcrossRelease",
	},
	{
		guard: "once lost, always lost", file: "renew.go",
		edits: []edit{{
			old: "\tlost := h.expire(time.Now())\n\ttold := lost == nil && (h.phase == live || h.phase == kept)",
			new: "\tvar lost error\n\tif err == nil && h.phase == orphaned {\n\t\th.phase = live\n\t}\n\ttold := h.phase == live || h.phase == kept",
		}},
		pkg: "redisbackend", test: "OnceLostAlwaysLost",
	},
	{
		guard: "renewal stopped by Unlock", file: "release.go",
		edits: []edit{{
			old: "\th.phase = releasing\n\th.mutex.client.scheduler.remove(h)\n",
			new: "",
		}, {
			old: "\th.finish(ErrLost)\n\treturn true, err",
			new: "\treturn true, err",
		}},
		pkg: "redisbackend", test: "UnlockStopsRenewal",
	},
}
