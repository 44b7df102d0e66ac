// The peer goharvest as a program: one harvester on the settings of a file, until it is stopped.
package main

import (
	"log"
	"os"

	"github.com/obsidiandynamics/goharvest"
	"github.com/obsidiandynamics/libstdgo/scribe"
)

func main() {
	settings, err := os.ReadFile(os.Args[1])
	check(err)
	config, err := goharvest.Unmarshal(settings)
	check(err)
	// By default it would log every record.
	config.Scribe.SetEnabled(scribe.Info)
	harvest, err := goharvest.New(config)
	check(err)
	check(harvest.Start())
	check(harvest.Await())
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
