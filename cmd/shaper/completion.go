package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
)

// The scripts ask the program itself. So they know the commands and flags of this version, and the
// classes of the running daemon. A script does not pass on the word that is being typed. If that word
// begins with "-", the script adds a "-", and the shell picks the flags that fit. If it passed on a
// "--", urfave/cli would run the command, since no flag follows a "--". The scripts of bash and zsh
// put no blank behind what ends with "=", since a value follows; fish does so by itself.

const bashScript = `# bash completion for shaper: source <(shaper completion bash)
_shaper() {
    local cur="${COMP_WORDS[COMP_CWORD]}" words=("${COMP_WORDS[@]:0:COMP_CWORD}") IFS=$'\n'
    [[ "$cur" == -* ]] && words+=(-)
    COMPREPLY=($(compgen -W "$("${words[@]}" --generate-bash-completion 2>/dev/null)" -- "$cur"))
    if [[ "${COMPREPLY[0]}" == *= ]]; then compopt -o nospace; fi
}
complete -o bashdefault -o default -F _shaper shaper
`

const zshScript = `#compdef shaper
# zsh completion for shaper: shaper completion zsh >"${fpath[1]}/_shaper"
_shaper() {
    local -a asked=("${(@)words[1,CURRENT-1]}") found
    [[ "$words[CURRENT]" == -* ]] && asked+=(-)
    found=("${(@f)$("${asked[@]}" --generate-bash-completion 2>/dev/null)}")
    compadd -S '' -- ${(M)found:#*=}
    compadd -- ${found:#*=}
    _files
}
# If zsh loads this file from fpath, the file is the function itself, the first time.
if [[ "$funcstack[1]" == _shaper ]]; then _shaper; else compdef _shaper shaper; fi
`

const fishScript = `# fish completion for shaper: shaper completion fish >~/.config/fish/completions/shaper.fish
function __shaper_complete
    set -l asked (commandline -opc)
    set -l current (commandline -ct)
    string match -q -- '-*' $current; and set -a asked -
    $asked --generate-bash-completion 2>/dev/null
end
complete -c shaper -a '(__shaper_complete)'
`

var scripts = map[string]string{"bash": bashScript, "zsh": zshScript, "fish": fishScript}

func completionCommand() *cli.Command {
	return &cli.Command{
		Name:      "completion",
		Usage:     "print a completion script for a shell",
		ArgsUsage: "bash|zsh|fish",
		Action: func(c *cli.Context) error {
			if err := arguments(c, 1, 1); err != nil {
				return err
			}
			script, ok := scripts[c.Args().First()]
			if !ok {
				return usageError("there is no completion for %q; there is for bash, zsh and fish", c.Args().First())
			}
			_, err := io.WriteString(c.App.Writer, script)
			return err
		},
		BashComplete: func(c *cli.Context) {
			if c.NArg() == 0 {
				fmt.Fprintln(c.App.Writer, strings.Join([]string{"bash", "zsh", "fish"}, "\n"))
			}
		},
	}
}

// completePatience bounds how long a shell waits for a daemon that hangs.
const completePatience = 500 * time.Millisecond

// completeFlags prints the flags of the command if the last word begins with "-". Otherwise it
// prints nothing, and returns false.
func completeFlags(c *cli.Context) bool {
	last := len(os.Args) - 2 // the last argument is `completing`
	if last < 0 || !strings.HasPrefix(os.Args[last], "-") {
		return false
	}
	cli.DefaultCompleteWithFlags(c.Command)(c)
	return true
}

// completeClasses completes the arguments of set: the first to the classes of the daemon, the
// others to the keys that are set most often.
func completeClasses(c *cli.Context) {
	if c.NArg() == 0 {
		completeClass(c)
	} else if !completeFlags(c) {
		fmt.Fprintln(c.App.Writer, "rate=\nburst=\n--for")
	}
}

// completeClass completes the first argument to the classes of the daemon.
func completeClass(c *cli.Context) {
	if completeFlags(c) {
		return
	}
	d, err := client(c)
	if err != nil || c.NArg() > 0 {
		return
	}
	ctx, cancel := context.WithTimeout(c.Context, completePatience)
	defer cancel()
	classes, err := d.Classes(ctx)
	if err != nil {
		return
	}
	var names []string
	for _, class := range classes {
		names = append(names, class.Name)
	}
	slices.Sort(names)
	fmt.Fprintln(c.App.Writer, strings.Join(names, "\n"))
}
