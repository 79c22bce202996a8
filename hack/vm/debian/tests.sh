#!/bin/sh
# Runs the tests of this boot. Then boots again, first in order and then as after a power failure, or
# switches the machine off. The last line is what hack/vm waits for.
boot=$(($(cat /srv/boots 2>/dev/null || echo 0) + 1))
echo $boot >/srv/boots
sync /srv/boots
case $boot in
1) run='(TestFirstBoot|TestAppArmor)' ;;
2) run=TestAfterReboot ;;
*) run='(TestAfterReset|TestRPM.*)' ;;
esac
result=0
RUNONCE_TEST_MACHINE=debian /srv/tests/debian.test -test.v -test.timeout 10m -test.run "^$run\$" || result=1
case $result$boot in
01) systemctl reboot ;;
02) echo b >/proc/sysrq-trigger ;;
*)
	echo "vm: exit code $result"
	sleep 1
	systemctl poweroff --force --force
	;;
esac
