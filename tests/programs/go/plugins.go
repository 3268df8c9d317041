// With this file beside program.go the program can load plugins.
package main

import (
	"os"
	"plugin"
)

func init() {
	if len(os.Args) > 1000 {
		plugin.Open(os.Args[1000])
	}
}
