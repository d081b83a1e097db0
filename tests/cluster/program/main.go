// Command control-plane is every server and tool that the tests need of a Kubernetes cluster, in one static program
// that picks its part by its first argument.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "name a part: etcd, kube-apiserver, kube-controller-manager, kube-scheduler or kubectl")
		os.Exit(2)
	}
	part := os.Args[1]
	// Each part reads os.Args as if it had been started under its own name.
	os.Args = os.Args[1:]
	switch part {
	case "etcd":
		etcdmain.Main(os.Args)
	case "kube-apiserver":
		os.Exit(cli.Run(apiserver.NewAPIServerCommand()))
	case "kube-controller-manager":
		os.Exit(cli.Run(controllermanager.NewControllerManagerCommand()))
	case "kube-scheduler":
		os.Exit(cli.Run(scheduler.NewSchedulerCommand()))
	case "kubectl":
		runKubectl(kubectl.NewDefaultKubectlCommand())
	default:
		fmt.Fprintf(os.Stderr, "there is no part %q\n", part)
		os.Exit(2)
	}
}

// runKubectl prints errors as kubectl does, without the usage text.
func runKubectl(command *cobra.Command) {
	if err := cli.RunNoErrOutput(command); err != nil {
		kubectlutil.CheckErr(err)
	}
}
