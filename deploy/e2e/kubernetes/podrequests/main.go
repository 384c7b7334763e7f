// Podrequests reads pods, one JSON object a line, and prints for each what Kubernetes' own PodRequests says of it:
// one JSON object a line, from resource name to the quantity in thousandths (cpu) or whole units (all else), rounded up.
// A pod that cannot be decoded prints {"error": "…"}. With --version it prints that of the code it asks, such as v0.36.3.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"runtime/debug"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "--version" {
		fmt.Println(version())
		return
	}
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(make([]byte, 0, 1<<16), 1<<24)
	out := json.NewEncoder(os.Stdout)
	for in.Scan() {
		var answer any
		var pod v1.Pod
		if err := json.Unmarshal(in.Bytes(), &pod); err != nil {
			answer = map[string]string{"error": err.Error()}
		} else {
			answer = quantities(resource.PodRequests(&pod, options))
		}
		if err := out.Encode(answer); err != nil {
			log.Fatal(err)
		}
	}
	if err := in.Err(); err != nil {
		log.Fatal(err)
	}
}

func version() string {
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if module.Path == "k8s.io/component-helpers" {
			if module.Replace != nil {
				module = module.Replace
			}
			return module.Version
		}
	}
	return ""
}

// What the kube-scheduler asks for when it computes a pod's requests: pod-level resources count, and so does a resize
// that the kubelet has not settled yet.
var options = resource.PodResourcesOptions{UseStatusResources: true, InPlacePodLevelResourcesVerticalScalingEnabled: true}

func quantities(requests v1.ResourceList) map[string]int64 {
	numbers := make(map[string]int64, len(requests))
	for name, quantity := range requests {
		if name == v1.ResourceCPU {
			numbers[string(name)] = quantity.MilliValue()
		} else {
			numbers[string(name)] = quantity.Value()
		}
	}
	return numbers
}
