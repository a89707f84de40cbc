/* The sandbox container of a pod: holds its namespaces, reaps its orphans, ends on a signal. */
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static void stop(int signal_number)
{
	(void)signal_number;
	_exit(EXIT_SUCCESS);
}

int main(void)
{
	/* An ignored SIGCHLD makes the kernel reap. */
	signal(SIGCHLD, SIG_IGN);
	signal(SIGINT, stop);
	signal(SIGTERM, stop);
	for (;;)
		pause();
}
