package redisbackend

import (
	"context"
	_ "embed"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// The parts of the scripts. Each begins with a comment about its keys, arguments and answers.
var (
	//go:embed scripts/grant.lua
	grantLua string
	//go:embed scripts/queue.lua
	queueLua string
	//go:embed scripts/refuse.lua
	refuseLua string
	//go:embed scripts/acquire.lua
	acquireLua string
	//go:embed scripts/release.lua
	releaseLua string
	//go:embed scripts/acquireall.lua
	acquireAllLua string
	//go:embed scripts/releaseall.lua
	releaseAllLua string
	//go:embed scripts/break.lua
	breakLua string
	//go:embed scripts/downgrade.lua
	downgradeLua string
	//go:embed scripts/export.lua
	exportLua string
	//go:embed scripts/adopt.lua
	adoptLua string
	//go:embed scripts/renew.lua
	renewLua string
	//go:embed scripts/inspect.lua
	inspectLua string
	//go:embed scripts/echo.lua
	echoLua string
)

// The requests that a driver sends to its server.
var (
	acquireScript    = newScript(grantLua, acquireLua)
	releaseScript    = newScript(grantLua, releaseLua)
	acquireAllScript = newScript(grantLua, acquireAllLua)
	releaseAllScript = newScript(grantLua, releaseAllLua)
	breakScript      = newScript(grantLua, breakLua)
	downgradeScript  = newScript(grantLua, downgradeLua)
	exportScript     = newScript(grantLua, exportLua)
	adoptScript      = newScript(grantLua, adoptLua)
	renewScript      = newScript("", renewLua)
	inspectScript    = newScript("", inspectLua)
	echoScript       = newScript("", echoLua)
)

// script returns the texts of a Lua script. The first call builds them, so that they do not delay
// the start of a program that does not use them. No script has a shebang line, because a server
// without memory refuses a script with a shebang line as a whole. It executes any other script up
// to the first command that needs memory.
type script func() *scriptTexts

// scriptTexts are a script as arguments of EVAL and EVALSHA. They are interfaces already, because
// they become arguments of each command.
type scriptTexts struct {
	source, hash any // strings
}

// newScript returns a script of two parts. In the second one, a comment with the name of another
// part stands for that part.
func newScript(first, second string) script {
	return sync.OnceValue(func() *scriptTexts {
		parts := strings.NewReplacer(
			"\n-- queue.lua\n", "\n"+queueLua, "\n-- refuse.lua\n", "\n"+refuseLua,
		)
		source := first + parts.Replace(second)
		return &scriptTexts{source: source, hash: redis.NewScript(source).Hash()}
	})
}

// once is a command that no client repeats. After a repetition the answer "nothing to release"
// could mean that the first request has released the lock.
type once struct{ *redis.Cmd }

// NoRetry implements redis.Cmder.
func (once) NoRetry() bool { return true }

// newCommand returns a command that evaluates a script. name is "evalsha" or "eval", and text is
// the hash or the source of the script. args begins with two blanks for them.
func newCommand(ctx context.Context, name, text any, args []any) once {
	args[0], args[1] = name, text
	cmd := redis.NewCmd(ctx, args...)
	cmd.SetFirstKeyPos(3)
	return once{cmd}
}
